"""Process 1 of one node: its mounts, network, containerd, kubelet and kube-proxy. Also the bridge between nodes.

The node sees the machine's file system with empty folders over /run, /var/lib and /var/log. It mounts only inside its
mount namespace, which ends with the node's last process. Its programs write only to its own folders; pods also write to
the cluster's bucket.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from infra.local import components
from infra.local.components import NODE_ROOT
from infra.local.leftovers import empty_cgroups, make_cgroup
from infra.local.settings import (
    CONTROL_PLANE_ADDRESS,
    NODE_NETWORK,
    POD_NETWORK,
    SERVICE_NETWORK,
    ClusterSettings,
    node_address,
    pod_subnet,
)
from infra.local.supervisor import Program, keep_running

CONTAINERD_CONFIG = f"{NODE_ROOT}/data/containerd.toml"
NODE_WAIT_SECONDS = 10.0
"""Seconds to wait for a node's network namespace and interface."""


def mount(*words: str) -> None:
    """Run one `mount` command in the node's namespace. With -n, `mount` writes no file on the machine."""
    subprocess.run(["mount", "-n", *words], check=True)


def bind(descriptor: int, target: Path) -> None:
    """Mount an open file or folder on `target`, even if another mount now hides its path. Close the descriptor."""
    # Without -c, `mount` resolves the link to the hidden path.
    mount("-c", "--bind", f"/proc/{os.getpid()}/fd/{descriptor}", str(target))
    os.close(descriptor)


def make_mounts(settings: ClusterSettings, binaries: Path, index: int) -> None:
    """Mount the node's folders below NODE_ROOT, and empty folders over the machine's /run, /var/lib and /var/log."""
    sources = {
        "data": settings.node_folder(index),
        "bin": binaries.parent,
        "keys": settings.keys,
        "bucket": settings.bucket,
    }
    descriptors = {name: os.open(source, os.O_PATH) for name, source in sources.items()}
    for hidden in ("/run", "/var/lib", "/var/log"):
        mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", hidden)
    NODE_ROOT.mkdir()
    for name, descriptor in descriptors.items():
        (NODE_ROOT / name).mkdir()
        bind(descriptor, NODE_ROOT / name)
    hide_name_servers()


def hide_name_servers() -> None:
    """Make name lookups in the node fail at once, because the node cannot reach the machine's name servers.

    Otherwise a pull from a registry takes 50 s to fail, because containerd repeats each lookup. The pull delays the
    deletion of its pod.
    """
    configuration = Path("/etc/resolv.conf").resolve()
    if configuration.exists():
        empty = Path("/run/resolv.conf")
        empty.write_text("nameserver 127.0.0.1\n", encoding="ascii")
        mount("--bind", str(empty), str(configuration))


def write_configuration(settings: ClusterSettings, index: int) -> None:
    """Write the files that containerd and the kubelet read."""
    data = NODE_ROOT / "data"
    for folder in (Path("/run/cni"), data / "kubelet", data / "pod-logs"):
        folder.mkdir(parents=True, exist_ok=True)
    Path(CONTAINERD_CONFIG).write_text(components.containerd_config(), encoding="utf-8")
    (data / "kubelet.json").write_text(json.dumps(components.kubelet_config(settings, index)), encoding="utf-8")
    Path("/run/cni/10-pods.conflist").write_text(components.cni_config(index), encoding="utf-8")


def ip(*words: str) -> None:
    """Run one `ip` command in the current network namespace. If `ip` fails, raises RuntimeError with its error text."""
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {result.stderr.strip()}")


def make_bridge() -> None:
    """Create the bridge between the nodes and the control plane, and blackhole routes for pods and Services."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "nodes", "type", "bridge")
    ip("addr", "add", f"{CONTROL_PLANE_ADDRESS}/{NODE_NETWORK.prefixlen}", "dev", "nodes")
    ip("link", "set", "nodes", "up")
    for network in (POD_NETWORK, SERVICE_NETWORK):
        ip("route", "add", "blackhole", str(network))


def attach_to_bridge(pid: int, index: int) -> None:
    """Connect the network namespace of process `pid` to the bridge as node `index`, with an interface `eth0`."""
    own_namespace = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + NODE_WAIT_SECONDS
    while Path(f"/proc/{pid}/ns/net").readlink() == own_namespace:
        if time.monotonic() > deadline:
            raise RuntimeError(f"node {index} has no network namespace after {NODE_WAIT_SECONDS:.0f} s")
        time.sleep(0.01)
    interface = f"node-{index}"
    subprocess.run(["ip", "link", "delete", interface], capture_output=True, check=False)
    ip("link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", interface, "master", "nodes", "up")
    subnet = str(pod_subnet(index))
    ip("route", "replace", subnet, "via", node_address(index))


def join_cluster(index: int, nodes: int) -> None:
    """Wait for `eth0` inside a node, set the node's address, and add routes to the pods of the other nodes.

    The default route ends at the control plane's namespace, which does not forward packets. A local packet to a Service
    needs a route before the packet filter can rewrite its address.
    """
    deadline = time.monotonic() + NODE_WAIT_SECONDS
    while not Path("/proc/self/net/dev").read_text(encoding="ascii").count("eth0:"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"node {index} has no interface eth0 after {NODE_WAIT_SECONDS:.0f} s")
        time.sleep(0.02)
    ip("link", "set", "lo", "up")
    ip("addr", "replace", f"{node_address(index)}/{NODE_NETWORK.prefixlen}", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    for other in range(nodes):
        if other != index:
            ip("route", "replace", str(pod_subnet(other)), "via", node_address(other))
    ip("route", "replace", "default", "via", CONTROL_PLANE_ADDRESS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")


def main(folder: Path, binaries: Path, index: int) -> None:
    """Run node `index` until this process ends."""
    settings = ClusterSettings.load(folder)
    make_mounts(settings, binaries, index)
    join_cluster(index, settings.nodes)
    write_configuration(settings, index)
    # Remove the cgroups of containers from the node's last run. Otherwise the kubelet spends so long on these cgroups
    # that its watchdog stops the kubelet.
    empty_cgroups(f"{settings.cgroup}/node-{index}")
    make_cgroup(f"{settings.cgroup}/node-{index}")
    logs = NODE_ROOT / "data" / "logs"
    authority = NODE_ROOT / "keys" / "ca.crt"
    containerd = Program(
        name="containerd",
        argv=[components.in_node("containerd"), "--config", CONTAINERD_CONFIG],
        environment={"PATH": components.runtime_path(os.environ["PATH"])},
        log=logs / "containerd.log",
    )
    kubernetes = {
        "kubelet": components.kubelet(settings, index),
        "kube-proxy": components.kube_proxy(settings, index),
    }
    waiting = [
        Program(name=name, argv=argv, log=logs / f"{name}.log", api_authority=authority)
        for name, argv in kubernetes.items()
    ]
    keep_running([containerd, *waiting])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
