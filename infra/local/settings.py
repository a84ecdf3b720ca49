"""Settings of a local cluster, its paths on this machine, and the addresses in its network."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import os
import re
from pathlib import Path

KUBERNETES_VERSION = "1.37.2"
"""Version of the control plane, the kubelets and kubectl, in local clusters and in `make rehearse`."""
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
"""Programs of the control plane and the nodes, and kubectl. If set-up builds them, all are links to one binary."""
RUNTIME_PROGRAMS = {
    "containerd": "containerd/containerd",
    "ctr": "containerd/ctr",
    "containerd-shim-runc-v2": "containerd-shim/containerd-shim-runc-v2",
    "runc": "runc/runc",
}
"""Container runtime programs, with their paths in the folder of built programs."""
CONTAINERD_CONFIG_VERSION = 4
"""Version of containerd's configuration: https://github.com/containerd/containerd/blob/v2.4.2/version/version.go"""
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""Default socket of containerd. Nodes and image imports can share this path, because each mounts its own /run."""

NODE_NETWORK = ipaddress.IPv4Network("10.64.0.0/24")
"""Addresses of the control plane (.1) and the nodes (.11, .12, ...), inside the cluster's network namespace."""
POD_NETWORK = ipaddress.IPv4Network("10.65.0.0/16")
"""Addresses of the pods. Node i has the i-th /24."""
SERVICE_NETWORK = ipaddress.IPv4Network("10.66.0.0/16")
"""Addresses of Services. No interface has them: the nodes' packet filters translate them to addresses of pods."""

CONTROL_PLANE_ADDRESS = str(NODE_NETWORK[1])
DNS_SERVICE_ADDRESS = str(SERVICE_NETWORK[10])
API_SERVICE_ADDRESS = str(SERVICE_NETWORK[1])
API_PORT = 6443
ETCD_PORT = 2379
CLUSTER_DOMAIN = "cluster.local"
PAUSE_IMAGE = "trainyard.local/pause:2"
SETTINGS_FILE = "settings.json"
"""File with the settings, in the cluster's folder."""
ID_FILE = "uid"
"""File with the unique id of the cluster. The removal of a cluster deletes this file first."""
MAX_NAME_LENGTH = 32
"""Maximum length of a cluster's name. Names of nodes are the cluster's name and a suffix, so they are longer."""
TAKE_OVER_VARIABLE = "TRAINYARD_TAKE_OVER"
"""Environment variable that each command sets to "true". Only the Kubernetes provider of a local cluster reads it. That
provider then overwrites fields that another program has set.
"""
BUCKET_UID = 1000
"""User id of the jobs' pods, which is also the owner of the bucket's folder."""


def cache_folder() -> Path:
    """Return the folder of built programs, images and cluster data.

    It is `$XDG_CACHE_HOME/trainyard`, or `~/.cache/trainyard` by default.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trainyard"


def built_programs() -> Path:
    """Return the folder with a subfolder for each program that set-up built or downloaded."""
    return cache_folder() / "bin"


PLAIN_NAMES = {"local-processes": "the cluster's processes", "local-images": "the nodes' images"}
"""Name of a Pulumi resource of the local cluster -> its name in messages."""


def clusters_folder() -> Path:
    """Return the folder that contains a folder and a lock file for each cluster on this machine."""
    return cache_folder() / "clusters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Settings of a local cluster.

    `owner` and `stack` identify the cluster. The other settings can change.
    """

    owner: str = ""
    """Project folder of the stack that owns the cluster."""
    stack: str = "local"
    """Name of the stack that owns the cluster."""
    name: str = "local"
    """Prefix of the nodes' names. In kubeconfigs, the cluster is called `trainyard-<name>`."""
    nodes: int = 2
    """Number of nodes. Each is a network namespace with its own kubelet and containerd."""
    port: int = 0
    """Port of the API server on 127.0.0.1; 0 for any free port."""

    @property
    def folder(self) -> Path:
        """Folder with all files of this cluster. The cluster's deletion removes it."""
        digest = hashlib.sha256(f"{self.owner}\0{self.stack}".encode()).hexdigest()[:10]
        return clusters_folder() / f"{label(self.stack)}-{digest}"

    @property
    def lock_file(self) -> Path:
        """File that a start or stop of the cluster locks. The cluster's deletion removes it."""
        return self.folder.with_suffix(".lock")

    @property
    def keys(self) -> Path:
        """Folder of certificates and kubeconfigs."""
        return self.folder / "keys"

    @property
    def bucket(self) -> Path:
        """Folder of the bucket, which pods on all nodes mount as a volume."""
        return self.folder / "bucket"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator. Users have no other credentials."""
        return self.keys / "admin.kubeconfig"

    @property
    def last_port(self) -> int:
        """Port that the last start opened, or 0 before the first start."""
        try:
            return int((self.folder / "port").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return 0

    @property
    def api_port(self) -> int:
        """Port of the API server: the port in the settings, or else that of the last start."""
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
        """Path of the parent cgroup of all containers. It depends on the cluster's folder."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]
        return f"/trainyard/{label(self.stack)}-{digest}"

    def node_folder(self, index: int) -> Path:
        """Return the folder of node `index` on disk: images, containers, kubelet state, logs."""
        return self.folder / f"node-{index}"

    def save(self) -> None:
        """Write the settings into the cluster's folder, for the processes that run it."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        (self.folder / SETTINGS_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ClusterSettings:
        """Return the settings that `save` wrote. Raises OSError if the file is missing, ValueError if it is damaged."""
        text = (folder / SETTINGS_FILE).read_text(encoding="utf-8")
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"{folder / 'settings.json'}: {error}") from error


def stack_cluster(
    owner: str, stack: str, *, name: str | None = None, nodes: int = 2, port: int | None = None
) -> ClusterSettings:
    """Return the settings of a stack's cluster, by default with the stack's name and a free port."""
    return ClusterSettings(owner=owner, stack=stack, name=name or label(stack), nodes=nodes, port=port or 0)


def label(stack: str) -> str:
    """Return the stack's name as a DNS label, short enough for a prefix of the nodes' names."""
    name = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")
    name = name if name[:1].isalpha() else f"stack-{name}"
    return name[:MAX_NAME_LENGTH].strip("-")


def node_address(index: int) -> str:
    """Return the address of node `index` on the cluster's bridge."""
    return str(NODE_NETWORK[11 + index])


def pod_subnet(index: int) -> ipaddress.IPv4Network:
    """Return the pod subnet of node `index`."""
    return list(POD_NETWORK.subnets(new_prefix=24))[index]
