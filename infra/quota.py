"""The quota that a cloud platform needs, by the cloud's own names: what to ask for before anything is created. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.config import PlatformConfig
from infra.gcp.config import GkeConfig
from infra.gcp.pools import SYSTEM_DISK_GB, NodePoolPlan, num_nodes, pool_plans, system_disk_type, system_machine
from infra.hardware.ec2 import Ec2Machine, ec2_machine
from infra.hardware.gce import gce_machine
from infra.hardware.quota_names import cpu_quota, disk_quota, gpu_quota, tpu_quota

GCP_SOURCE = "https://cloud.google.com/compute/resource-usage#gpu_quota"
TPU_SOURCE = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#ensure-quota"
AWS_SOURCE = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"

_EC2_QUOTAS: Mapping[tuple[str, bool], tuple[str, str]] = MappingProxyType(
    {
        ("standard", False): ("L-1216C47A", "Running On-Demand Standard instances"),
        ("standard", True): ("L-34B43A08", "All Standard Spot Instance Requests"),
        ("g", False): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
        ("g", True): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
        ("p", False): ("L-417A185B", "Running On-Demand P instances"),
        ("p", True): ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
        ("p5", True): ("L-C4BD4855", "All P5 Spot Instance Requests"),
    }
)
"""Class of instance and whether it is spot -> code and name of the quota, in vCPUs."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """An amount of one quota."""

    name: str
    """The cloud's name of it, its dimensions behind."""
    location: str
    """Region that it is for; `global` for all."""
    amount: int
    """How much of it the platform needs at most."""
    source: str
    """Where the cloud documents it."""


def quota_needed(platform: PlatformConfig) -> tuple[Quota, ...]:
    """What a cloud platform needs of each quota; nothing for the other platforms.

    Of several capacities of a pool each is counted by itself, for any of them may be the one that is used. Reserved
    nodes are counted too: a reservation was made against the same quota.
    """
    if isinstance(platform, GkeConfig):
        return _sorted(_gke(platform), platform.region)
    if isinstance(platform, EksConfig):
        return _sorted(_eks(platform), platform.region)
    return ()


_Needs = Counter[tuple[str, str, str]]
"""(name, `global` or nothing, source) -> amount."""


def _sorted(needs: _Needs, region: str) -> tuple[Quota, ...]:
    return tuple(
        Quota(name=name, location=scope or region, amount=amount, source=source)
        for (name, scope, source), amount in sorted(needs.items())
    )


def _gke(platform: GkeConfig) -> _Needs:
    needs: _Needs = Counter()
    system = gce_machine(system_machine(platform))
    needs[(cpu_quota(system.family), "", GCP_SOURCE)] += system.vcpus * platform.system_pool.max_nodes
    needs[(disk_quota(system_disk_type(platform)), "", GCP_SOURCE)] += SYSTEM_DISK_GB * platform.system_pool.max_nodes
    needs[("IN_USE_ADDRESSES", "", GCP_SOURCE)] += 1
    for pool in platform.pools:
        # Slices of one capacity are counted together; its zones stand for each other.
        first = {plan.rung: plan for plan in reversed(pool_plans(platform, pool))}
        for plan in first.values():
            needs.update(_node_pool(replace(plan, nodes=num_nodes(pool))))
    return needs


def _node_pool(plan: NodePoolPlan) -> _Needs:
    """What the nodes of one pool need."""
    needs: _Needs = Counter()
    preemptible = "PREEMPTIBLE_" if plan.rung == "spot" or plan.flexible else ""
    if plan.disk_type != "pd-standard":
        needs[(disk_quota(plan.disk_type), "", GCP_SOURCE)] += plan.pool.disk_size_gb * plan.nodes
    if plan.tpu is not None:
        needs[(preemptible + tpu_quota(plan.tpu.generation), "", TPU_SOURCE)] += plan.nodes * plan.tpu.chips_per_host
    elif plan.gpu is not None:
        needs[(preemptible + gpu_quota(plan.gpu), "", GCP_SOURCE)] += plan.nodes * plan.gpus
        if not preemptible:
            needs[("GPUS_ALL_REGIONS", "global", GCP_SOURCE)] += plan.nodes * plan.gpus
    if plan.machine.accelerators == 0:
        needs[(cpu_quota(plan.machine.family), "", GCP_SOURCE)] += plan.nodes * plan.machine.vcpus
    return needs


def _eks(platform: EksConfig) -> _Needs:
    needs: _Needs = Counter()
    system = ec2_machine(platform.system_pool.machine_type)
    needs[(_ec2_quota(system, spot=False), "", AWS_SOURCE)] += system.vcpus * platform.system_pool.nodes
    for plan in node_groups(platform):
        if plan.capacity_block:
            # Capacity blocks are bought by themselves and count against no quota of instances.
            continue
        name = _ec2_quota(plan.machine, spot=plan.pool.capacity == "spot")
        needs[(name, "", AWS_SOURCE)] += plan.nodes * plan.machine.vcpus
    return needs


def _ec2_quota(machine: Ec2Machine, *, spot: bool) -> str:
    kind = machine.family[0] if machine.gpus else "standard"
    if spot and machine.family.startswith("p5"):
        kind = "p5"
    code, name = _EC2_QUOTAS[(kind, spot)]
    return f"{code} {name} (vCPUs)"
