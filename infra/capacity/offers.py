"""Offer: identical nodes of a cloud platform's pool for jobs. No Pulumi."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from infra.hardware import Capacity
from infra.hardware.eks_nodes import MOST_PODS
from infra.hardware.tpus import TpuSlice

KEPT_FOR_DAEMONS = Capacity(millicores=300, memory=512 * 2**20)
"""Estimated requests of a cloud's agents (network, logs, metrics, devices) on a node. Not measured."""

SYSTEM = "system"
"""Name of the pool that every cluster has."""

PODS_OF_DAEMONS = 10
"""Number of agent pods on a node. EKS has up to eight: network, proxy, identity, disks, health, DCGM, GPUs, EFA."""

NodeState = tuple[int, int, int, int]
"""Remaining capacity of a node: accelerators, millicores, bytes of memory, pods."""
Nodes = Counter[NodeState]
"""Number of nodes by remaining capacity."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Identical nodes of a pool."""

    pool: str
    nodes: int
    node: Capacity
    gpu: str | None = None
    gpus: int = 0
    tpu: TpuSlice | None = None
    adapters: int = 0
    """Elastic Fabric Adapters of each node, which pods request as devices."""
    queued: bool = False
    """True if nodes are created only when a queue requests them."""
    pods: int = MOST_PODS
    """Maximum number of pods of each node."""

    @property
    def plain(self) -> bool:
        """True if the nodes have no accelerators, and therefore no taint."""
        return self.gpu is None and self.tpu is None

    @property
    def open(self) -> bool:
        """True if pods without a node selector can run on the nodes."""
        return self.plain and not self.queued

    @property
    def whole(self) -> NodeState:
        """Capacity of an empty node, without the daemons' pods."""
        accelerators = self.tpu.chips_per_host if self.tpu else self.gpus
        return accelerators, self.node.millicores, self.node.memory, self.pods - PODS_OF_DAEMONS


def without_daemons(node: Capacity, kept: Capacity = KEPT_FOR_DAEMONS) -> Capacity:
    """Return a node's capacity without the requests of the cloud's agents."""
    return Capacity(millicores=node.millicores - kept.millicores, memory=node.memory - kept.memory)
