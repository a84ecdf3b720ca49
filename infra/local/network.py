"""Network of a local cluster: a bridge in the cluster's namespace, an interface pair for each node, and routes.

Every command runs in a namespace of the cluster. The machine's own interfaces, routes and packet filter stay unchanged.
The cluster's namespace has no route to the outside, so packets to pods or Services cannot leave the machine.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from infra.local.settings import (
    CONTROL_PLANE_ADDRESS,
    NODE_NETWORK,
    POD_NETWORK,
    SERVICE_NETWORK,
    node_address,
    pod_subnet,
)

NODE_WAIT_SECONDS = 10.0


def ip(*words: str) -> None:
    """Run one `ip` command in the current network namespace. Raise RuntimeError with its error text if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def make_bridge() -> None:
    """Create the bridge that connects the nodes and the control plane, and blackhole routes for pods and services."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "nodes", "type", "bridge")
    ip("addr", "add", f"{CONTROL_PLANE_ADDRESS}/{NODE_NETWORK.prefixlen}", "dev", "nodes")
    ip("link", "set", "nodes", "up")
    for network in (POD_NETWORK, SERVICE_NETWORK):
        ip("route", "add", "blackhole", str(network))


def attach_node(pid: int, index: int) -> None:
    """Connect the network namespace of process `pid` to the bridge as node `index`, under the interface name `eth0`."""
    own = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + NODE_WAIT_SECONDS
    while Path(f"/proc/{pid}/ns/net").readlink() == own:
        if time.monotonic() > deadline:
            raise RuntimeError(f"node {index}: no network namespace of its own after {NODE_WAIT_SECONDS:.0f} s")
        time.sleep(0.01)
    here = f"node-{index}"
    subprocess.run(["ip", "link", "delete", here], capture_output=True, check=False)
    ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", here, "master", "nodes", "up")
    subnet = str(pod_subnet(index))
    ip("route", "replace", subnet, "via", node_address(index))


def join_cluster(index: int, nodes: int) -> None:
    """Wait for `eth0` inside a node, set the node's address, and add routes to the pods of the other nodes.

    The default route ends at the control plane's namespace, which does not forward packets. It exists because a local
    packet to a Service needs a route before the packet filter can rewrite its address.
    """
    deadline = time.monotonic() + NODE_WAIT_SECONDS
    while not Path("/proc/self/net/dev").read_text(encoding="ascii").count("eth0:"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"node {index}: no interface after {NODE_WAIT_SECONDS:.0f} s")
        time.sleep(0.02)
    ip("link", "set", "lo", "up")
    ip("addr", "replace", f"{node_address(index)}/{NODE_NETWORK.prefixlen}", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    for other in range(nodes):
        if other != index:
            ip("route", "replace", str(pod_subnet(other)), "via", node_address(other))
    ip("route", "replace", "default", "via", CONTROL_PLANE_ADDRESS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
