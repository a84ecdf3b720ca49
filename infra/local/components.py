"""Command lines and configuration files of the programs of the control plane and the nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from infra.hardware import this_machine
from infra.local.settings import (
    API_PORT,
    CLUSTER_DOMAIN,
    CONTAINERD_CONFIG_VERSION,
    CONTAINERD_SOCKET,
    CONTROL_PLANE_ADDRESS,
    DNS_SERVICE_ADDRESS,
    ETCD_PORT,
    PAUSE_IMAGE,
    POD_NETWORK,
    RUNTIME_PROGRAMS,
    SERVICE_NETWORK,
    ClusterSettings,
    node_address,
    pod_subnet,
)
from infra.operator_releases import system_reserved

CNI_PLUGINS = "/usr/lib/cni"
NODE_ROOT = Path("/run/trainyard")
"""Folder in a node's mount namespace with its data (`data`), the programs (`bin`), the keys and the bucket."""
NODE_KUBERNETES = NODE_ROOT / "bin" / "kubernetes"
EVICTION_BYTES = 500_000_000
"""Free disk space below which kubelets evict pods and delete images. `check_machine` requires more."""
BUCKET_IN_NODE = str(NODE_ROOT / "bucket")


def etcd(programs: Path, keys: Path, data: Path) -> list[str]:
    """Return the command of etcd. It listens on the cluster's loopback interface and requires client certificates."""
    url = f"https://127.0.0.1:{ETCD_PORT}"
    return [
        f"{programs}/etcd",
        f"--data-dir={data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        f"--cert-file={keys}/etcd.crt",
        f"--key-file={keys}/etcd.key",
        f"--trusted-ca-file={keys}/etcd-ca.crt",
        "--client-cert-auth",
    ]


def apiserver(programs: Path, keys: Path) -> list[str]:
    """Return the command of kube-apiserver, with TLS, RBAC and the Node authorizer.

    Anonymous callers can reach only the health checks.
    """
    return [
        f"{programs}/kube-apiserver",
        f"--bind-address={CONTROL_PLANE_ADDRESS}",
        f"--advertise-address={CONTROL_PLANE_ADDRESS}",
        f"--secure-port={API_PORT}",
        f"--etcd-servers=https://127.0.0.1:{ETCD_PORT}",
        f"--etcd-cafile={keys}/etcd-ca.crt",
        f"--etcd-certfile={keys}/apiserver-etcd-client.crt",
        f"--etcd-keyfile={keys}/apiserver-etcd-client.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        f"--kubelet-client-certificate={keys}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={keys}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        f"--authentication-config={keys}/authentication.json",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-aggregator-routing=true",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--service-account-key-file={keys}/service-account.pub",
        f"--service-account-signing-key-file={keys}/service-account.key",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        "--profiling=false",
    ]


def authentication() -> dict[str, Any]:
    """Return the API server's authentication configuration: anonymous requests can reach only the health checks."""
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": True, "conditions": [{"path": path} for path in ("/livez", "/readyz", "/healthz")]},
    }


def controller_manager(programs: Path, keys: Path) -> list[str]:
    """Return the command of kube-controller-manager. A node that stops answering becomes unreachable after 20 s."""
    return [
        f"{programs}/kube-controller-manager",
        f"--kubeconfig={keys}/controller-manager.kubeconfig",
        f"--authentication-kubeconfig={keys}/controller-manager.kubeconfig",
        f"--authorization-kubeconfig={keys}/controller-manager.kubeconfig",
        "--bind-address=127.0.0.1",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={keys}/service-account.key",
        f"--root-ca-file={keys}/ca.crt",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--pvclaimbinder-sync-period=1s",
        "--node-monitor-grace-period=20s",
        "--node-monitor-period=2s",
        "--profiling=false",
    ]


def scheduler(programs: Path, keys: Path) -> list[str]:
    """Return the command of kube-scheduler."""
    return [
        f"{programs}/kube-scheduler",
        f"--kubeconfig={keys}/scheduler.kubeconfig",
        f"--authentication-kubeconfig={keys}/scheduler.kubeconfig",
        f"--authorization-kubeconfig={keys}/scheduler.kubeconfig",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--profiling=false",
    ]


def coredns(programs: Path, keys: Path) -> list[str]:
    """Return the command of CoreDNS. It runs in the control plane's namespace, so DNS survives the loss of any node."""
    return [f"{programs}/coredns", "-conf", f"{keys}/Corefile"]


def corefile(keys: Path) -> str:
    """Return the configuration of the cluster's DNS.

    CoreDNS caches a missing name for only one second, because each rank waits until the names of the others exist.
    """
    return f"""\
.:53 {{
    bind {CONTROL_PLANE_ADDRESS}
    errors
    ready 127.0.0.1:8181
    cache 10 {{
        denial 1000 1
    }}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {keys}/coredns.kubeconfig
        ttl 5
    }}
}}
"""


def containerd_config() -> str:
    """Return a node's containerd configuration. It disables AppArmor and never lowers an OOM score."""
    runtime = 'plugins."io.containerd.cri.v1.runtime"'
    runc = f"{runtime}.containerd.runtimes.runc"
    return f"""\
version = {CONTAINERD_CONFIG_VERSION}
root = "{NODE_ROOT}/data/containerd"
oom_score = 0
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
[{runtime}]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [{runc}]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{in_node("containerd-shim-runc-v2")}"
    [{runc}.options]
      BinaryName = "{in_node("runc")}"
      SystemdCgroup = false
  [{runtime}.cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "/run/cni"
"""


def in_node(program: str) -> str:
    """Return the path of a container runtime program inside a node."""
    return f"{NODE_ROOT}/bin/{RUNTIME_PROGRAMS[program]}"


def runtime_path(path: str) -> str:
    """Return PATH with the folders of the container runtime's programs.

    After a restart, containerd looks up the shim of a running container by name. If PATH lacks the shim, containerd
    reports the container as dead, and the kubelet starts another container.
    """
    folders = dict.fromkeys(str(Path(in_node(program)).parent) for program in RUNTIME_PROGRAMS)
    return os.pathsep.join([*folders, path])


def cni_config(index: int) -> str:
    """Return the CNI configuration: a bridge in the node with addresses of the node's pod subnet."""
    network = {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": str(pod_subnet(index))}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    return json.dumps(network, indent=1)


def kubelet_config(settings: ClusterSettings, index: int) -> dict[str, Any]:
    """Return the kubelet's configuration. Nodes have equal shares of this machine; see `system_reserved`."""
    keys = NODE_ROOT / "keys"
    reserved = system_reserved(this_machine(), settings.nodes)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node_address(index),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{keys}/kubelet-{index}-server.crt",
        "tlsPrivateKeyFile": f"{keys}/kubelet-{index}-server.key",
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": "",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "podLogsDir": f"{NODE_ROOT}/data/pod-logs",
        # The commands `logs` and `report` read only the newest file. 100 MiB are enough for days of training.
        "containerLogMaxSize": "100Mi",
        "containerLogMaxFiles": 2,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"{settings.cgroup}/node-{index}",
        # Without this, a kubelet of 1.35 or newer exits at once on a machine with cgroup version 1:
        # https://kubernetes.io/docs/concepts/architecture/cgroups/
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "systemReserved": {"cpu": f"{reserved.millicores}m", "memory": str(reserved.memory)},
        "oomScoreAdj": 0,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": str(EVICTION_BYTES),
            "imagefs.available": str(EVICTION_BYTES),
        },
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        "readOnlyPort": 0,
    }


def kubelet(settings: ClusterSettings, index: int) -> list[str]:
    """Return the command of the kubelet of node `index`."""
    return [
        f"{NODE_KUBERNETES}/kubelet",
        f"--config={NODE_ROOT}/data/kubelet.json",
        f"--root-dir={NODE_ROOT}/data/kubelet",
        f"--kubeconfig={NODE_ROOT}/keys/kubelet-{index}.kubeconfig",
        f"--hostname-override={settings.node_names[index]}",
        f"--node-ip={node_address(index)}",
        f"--node-labels=trainyard.dev/cluster={settings.name}",
    ]


def kube_proxy(settings: ClusterSettings, index: int) -> list[str]:
    """Return the command of kube-proxy of node `index`. It configures iptables in the node's network namespace."""
    return [
        f"{NODE_KUBERNETES}/kube-proxy",
        f"--kubeconfig={NODE_ROOT}/keys/kube-proxy.kubeconfig",
        f"--hostname-override={settings.node_names[index]}",
        f"--cluster-cidr={POD_NETWORK}",
        "--proxy-mode=iptables",
        "--conntrack-max-per-core=0",
        "--bind-address=127.0.0.1",
        "--healthz-bind-address=127.0.0.1:10256",
    ]
