"""What a local cluster is made from (plain values), and where on this machine and in its own network each part lies."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import os
import re
from pathlib import Path

KUBERNETES_VERSION = "1.37.2"
"""Version of the control plane, the kubelets and kubectl, here and in rehearsals."""
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "coredns",
)
"""The names by which the one Kubernetes binary of the set-up is called."""
RUNTIME_PROGRAMS = {
    "containerd": "containerd/containerd",
    "ctr": "containerd/ctr",
    "containerd-shim-runc-v2": "containerd-shim/containerd-shim-runc-v2",
    "runc": "runc/runc",
}
"""The programs that run containers, and where each lies in the folder of built programs."""
CONTAINERD_CONFIG_VERSION = 4
"""https://github.com/containerd/containerd/blob/v2.4.2/version/version.go"""
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""Where containerd listens by default: in a node's or an import's own mount namespace."""

NODE_NETWORK = ipaddress.IPv4Network("10.64.0.0/24")
"""Addresses of the control plane (.1) and the nodes (.11, .12, ...), inside the cluster's own network namespace."""
POD_NETWORK = ipaddress.IPv4Network("10.65.0.0/16")
"""Addresses of the pods; node i has the i-th /24."""
SERVICE_NETWORK = ipaddress.IPv4Network("10.66.0.0/16")
"""Addresses of services; they exist only in the nodes' own packet filters."""

CONTROL_PLANE_ADDRESS = str(NODE_NETWORK[1])
DNS_SERVICE_ADDRESS = str(SERVICE_NETWORK[10])
API_SERVICE_ADDRESS = str(SERVICE_NETWORK[1])
API_PORT = 6443
ETCD_PORT = 2379
CLUSTER_DOMAIN = "cluster.local"
PAUSE_IMAGE = "trainyard.local/pause:1"
LONGEST_NAME = 32
"""Longest name of a cluster: its nodes' names and the names of their pods are longer."""
TAKE_OVER_VARIABLE = "TRAINYARD_TAKE_OVER"
"""Environment variable, "true" in all commands, that the Kubernetes provider of the local cluster gets by its own name.

That provider then takes fields over from other field managers.
"""
BUCKET_UID = 1000
"""The user that job pods run as, who must be able to write to the bucket's folder."""


def cache_folder() -> Path:
    """The folder of built programs, images and cluster data: `$XDG_CACHE_HOME/trainyard`, else `~/.cache/trainyard`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trainyard"


def built_programs() -> Path:
    """Return the folder with a folder for each program that set-up built."""
    return cache_folder() / "bin"


def clusters_folder() -> Path:
    """Return the folder with a folder and a lock file for each cluster of this machine."""
    return cache_folder() / "clusters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The inputs of one local cluster; equal settings are the same cluster.

    A cluster belongs to one stack of one checkout, and a stack has at most one. Name, nodes and port can change.
    """

    owner: str = ""
    """Folder of the checkout that the cluster belongs to."""
    stack: str = "local"
    """Name of the stack that the cluster belongs to."""
    name: str = "local"
    """Prefix of the nodes' names and name in kubeconfigs."""
    nodes: int = 2
    """Number of nodes, each a network namespace with its own kubelet and containerd."""
    port: int = 0
    """Port on 127.0.0.1 where the API server answers; with 0 the start chooses a free one."""

    @property
    def folder(self) -> Path:
        """The folder with everything that this cluster keeps on disk; removed when it is deleted."""
        digest = hashlib.sha256(f"{self.owner}\0{self.stack}".encode()).hexdigest()[:10]
        return clusters_folder() / f"{label(self.stack)}-{digest}"

    @property
    def lock_file(self) -> Path:
        """The file that a start or stop locks; removed when the cluster is deleted."""
        return self.folder.with_suffix(".lock")

    @property
    def keys(self) -> Path:
        """Certificates and kubeconfigs."""
        return self.folder / "keys"

    @property
    def bucket(self) -> Path:
        """The folder that every node offers to its pods as the bucket's volume."""
        return self.folder / "bucket"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, the only way in."""
        return self.keys / "admin.kubeconfig"

    @property
    def last_port(self) -> int:
        """The port that the last start opened; 0 before the first one."""
        try:
            return int((self.folder / "port").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return 0

    @property
    def open_port(self) -> int:
        """The port where the API server answers."""
        return self.port or self.last_port

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes in order."""
        return tuple(f"{self.name}-{index}" for index in range(self.nodes))

    @property
    def context(self) -> str:
        """Name of the cluster and of its context in every kubeconfig."""
        return f"trainyard-{self.name}"

    @property
    def cgroup(self) -> str:
        """The cgroup under which all containers run, in every hierarchy; clusters of other caches have another one."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]
        return f"/trainyard/{label(self.stack)}-{digest}"

    def node_folder(self, index: int) -> Path:
        """The folder that node `index` keeps on disk: images, containers, kubelet state, logs."""
        return self.folder / f"node-{index}"

    def save(self) -> None:
        """Write the settings beside the cluster's data, for the processes that run it."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        (self.folder / "settings.json").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ClusterSettings:
        """Read the settings that `save` wrote. Raises OSError without a file, ValueError for a damaged one."""
        text = (folder / "settings.json").read_text(encoding="utf-8")
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"{folder / 'settings.json'}: {error}") from error


def stack_cluster(
    owner: str, stack: str, *, name: str | None = None, nodes: int = 2, port: int | None = None
) -> ClusterSettings:
    """Return the settings of a stack's cluster; its name defaults to the stack's, its port to a free one."""
    return ClusterSettings(owner=owner, stack=stack, name=name or label(stack), nodes=nodes, port=port or 0)


def label(stack: str) -> str:
    """Return the stack's name as a DNS label that is short enough to be the prefix of nodes' names."""
    found = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")
    found = found if found[:1].isalpha() else f"stack-{found}"
    return found[:LONGEST_NAME].strip("-")


def node_address(index: int) -> str:
    """Address of node `index` on the cluster's bridge."""
    return str(NODE_NETWORK[11 + index])


def pod_subnet(index: int) -> ipaddress.IPv4Network:
    """The pods' addresses on node `index`."""
    return list(POD_NETWORK.subnets(new_prefix=24))[index]
