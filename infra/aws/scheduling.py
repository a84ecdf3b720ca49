"""Scheduling of pods onto the GPUs of EKS node groups. No Pulumi."""

from __future__ import annotations

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.hardware import gpus
from infra.naming import ACCELERATOR_LABEL
from infra.scheduling import EFA_RESOURCE, Scheduling, in_pool, tolerate


def scheduling(platform: EksConfig, accelerator: str, pool: str | None, gpus_per_host: int) -> Scheduling:
    """Return the scheduling fields of a job's pods. Raises ValueError if no pool has its accelerators.

    A host with some of a node's GPUs gets the same share of its network adapters, rounded down. Without `gpus_per_host`
    it gets all.
    """
    suitable = (plan for plan in node_groups(platform) if plan.machine.gpu == accelerator)
    plan = next((plan for plan in suitable if pool in (None, plan.name)), None)
    if plan is None:
        raise ValueError(f"no pool has {accelerator}")
    machine = plan.machine
    adapters = machine.efa_interfaces * (gpus_per_host or machine.gpus) // machine.gpus if plan.efa else 0
    return Scheduling(
        node_selector=in_pool(pool) | {ACCELERATOR_LABEL: accelerator},
        tolerations=(tolerate(gpus.RESOURCE),),
        accelerator_resource=gpus.RESOURCE,
        devices={EFA_RESOURCE: str(adapters)} if adapters else {},
    )
