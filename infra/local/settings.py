"""What a local cluster is made from (plain values), and where on this machine and in its own network each part lies."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import os
from pathlib import Path

PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "coredns",
)
"""The names by which the one Kubernetes binary of the set-up is called."""

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
BUCKET_UID = 1000
"""The user that job pods run as, who must be able to write to the bucket's folder."""


def cache_folder() -> Path:
    """The folder of built programs, images and cluster data: `$XDG_CACHE_HOME/trainyard`, else `~/.cache/trainyard`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trainyard"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The inputs of one local cluster; equal settings are the same cluster."""

    name: str = "local"
    """Name of the cluster and prefix of its nodes' names."""
    nodes: int = 2
    """Number of nodes, each a network namespace with its own kubelet and containerd."""
    port: int = 16443
    """Port on 127.0.0.1 where the API server answers."""
    owner: str = ""
    """The project folder that started the cluster: another project's cluster of this name is never touched."""

    @property
    def folder(self) -> Path:
        """Everything that this cluster keeps on disk; removed when it is deleted."""
        return cache_folder() / "clusters" / self.name

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
        return f"/trainyard/{self.name}-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    def node_folder(self, index: int) -> Path:
        """What node `index` keeps on disk: images, containers, kubelet state, logs."""
        return self.folder / f"node-{index}"

    def save(self) -> None:
        """Write the settings beside the cluster's data, for the processes that run it."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        (self.folder / "settings.json").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ClusterSettings:
        """Read the settings that `save` wrote."""
        return cls(**json.loads((folder / "settings.json").read_text(encoding="utf-8")))


def node_address(index: int) -> str:
    """Address of node `index` on the cluster's bridge."""
    return str(NODE_NETWORK[11 + index])


def pod_subnet(index: int) -> ipaddress.IPv4Network:
    """The pods' addresses on node `index`."""
    return list(POD_NETWORK.subnets(new_prefix=24))[index]
