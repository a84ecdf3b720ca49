"""Capacity of an EKS platform's nodes for jobs, by pool. No Pulumi."""

from __future__ import annotations

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.capacity.offers import SYSTEM, Offer, without_daemons
from infra.hardware.ec2 import ec2_machine
from infra.hardware.eks_nodes import eks_allocatable, eks_pods


def offers(platform: EksConfig) -> list[Offer]:
    """Return the nodes of each pool, with the system pool last."""
    found = [
        Offer(
            pool=plan.name,
            nodes=plan.nodes,
            node=without_daemons(eks_allocatable(plan.machine, fabric=plan.efa)),
            pods=eks_pods(plan.machine),
            gpu=plan.machine.gpu,
            gpus=plan.machine.gpus,
            adapters=plan.machine.efa_interfaces if plan.efa else 0,
        )
        for plan in node_groups(platform)
    ]
    machine = ec2_machine(platform.system_pool.machine_type)
    system = without_daemons(eks_allocatable(machine))
    nodes = platform.system_pool.nodes
    return [*found, Offer(pool=SYSTEM, nodes=nodes, node=system, pods=eks_pods(machine))]
