"""Nodes that a cloud platform has for its jobs, by pool, from the settings alone. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.gcp.config import GkeConfig
from infra.gcp.pools import num_nodes, pool_plans, system_machine
from infra.hardware import Capacity
from infra.hardware.ec2 import ec2_machine
from infra.hardware.eks_nodes import MOST_PODS, eks_allocatable, eks_pods
from infra.hardware.gce import gce_machine
from infra.hardware.gke_nodes import gke_allocatable
from infra.hardware.tpus import TpuSlice

KEPT_FOR_DAEMONS = Capacity(millicores=300, memory=512 * 2**20)
"""Estimated requests of a cloud's agents (network, logs, metrics, devices) on a node. Not yet measured."""
KEPT_FOR_GKE_DAEMONS = Capacity(millicores=450, memory=768 * 2**20)
"""Requests of the agents on every GKE node: 426 to 443 millicores and up to 596 MiB on measured CPU nodes.

2i2c-org/infrastructure 1097ae3, deployer/commands/generate/resource_allocation/node-capacity-info.json. A node of GKE
v1.36 requested 384 millicores and 626 MiB (October 2026); agents for GPUs request more.
"""

SYSTEM = "system"
"""Pool of the nodes that every cluster has."""

PODS_OF_DAEMONS = 10
"""Pods of such agents on a node; EKS has up to eight: network, proxy, identity, disks, health, DCGM, GPUs, EFA."""

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
    """Elastic Fabric Adapters of each node that pods request as devices."""
    queued: bool = False
    """True if a queue must request the nodes."""
    pods: int = MOST_PODS
    """Maximum pods of each node."""

    @property
    def plain(self) -> bool:
        """True if the nodes have no accelerators, and so no taint that keeps pods away."""
        return self.gpu is None and self.tpu is None

    @property
    def open(self) -> bool:
        """True if pods without a node selector may run there."""
        return self.plain and not self.queued

    @property
    def whole(self) -> NodeState:
        """Capacity of an empty node, without the daemons' pods."""
        accelerators = self.tpu.chips_per_host if self.tpu else self.gpus
        return accelerators, self.node.millicores, self.node.memory, self.pods - PODS_OF_DAEMONS


def offers_of(platform: GkeConfig | EksConfig) -> list[Offer]:
    """Return the nodes of each pool, with the system pool last."""
    return _gke(platform) if isinstance(platform, GkeConfig) else _eks(platform)


def _gke(platform: GkeConfig) -> list[Offer]:
    offers = []
    for pool in platform.pools:
        # Slices, provisioning models and zones have identical nodes. Models and zones are alternatives.
        plan = pool_plans(platform, pool)[0]
        node = _left(gke_allocatable(plan.machine), KEPT_FOR_GKE_DAEMONS)
        offers.append(
            Offer(
                pool=pool.name,
                nodes=num_nodes(pool),
                node=node,
                gpu=plan.gpu,
                gpus=plan.gpus,
                tpu=plan.tpu,
                queued=pool.capacity == ("queued",),
            )
        )
    system = _left(gke_allocatable(gce_machine(system_machine(platform))), KEPT_FOR_GKE_DAEMONS)
    return [*offers, Offer(pool=SYSTEM, nodes=platform.system_pool.max_nodes, node=system)]


def _eks(platform: EksConfig) -> list[Offer]:
    offers = [
        Offer(
            pool=plan.name,
            nodes=plan.nodes,
            node=_left(eks_allocatable(plan.machine, fabric=plan.efa)),
            pods=eks_pods(plan.machine),
            gpu=plan.machine.gpu,
            gpus=plan.machine.gpus,
            adapters=plan.machine.efa_interfaces if plan.efa else 0,
        )
        for plan in node_groups(platform)
    ]
    machine = ec2_machine(platform.system_pool.machine_type)
    system = _left(eks_allocatable(machine))
    nodes = platform.system_pool.nodes
    return [*offers, Offer(pool=SYSTEM, nodes=nodes, node=system, pods=eks_pods(machine))]


def _left(node: Capacity, kept: Capacity = KEPT_FOR_DAEMONS) -> Capacity:
    return Capacity(millicores=node.millicores - kept.millicores, memory=node.memory - kept.memory)
