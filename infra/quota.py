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
from infra.hardware.machines import MachineType

GCP_SOURCE = "https://cloud.google.com/compute/resource-usage#gpu_quota"
TPU_SOURCE = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#ensure-quota"
AWS_SOURCE = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"

_GPU_QUOTAS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
        "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
        "nvidia-l4": "NVIDIA_L4_GPUS",
        "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
        "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    }
)
"""GPU model -> quota of its own; newer ones share GPUS_PER_GPU_FAMILY, one for each family."""
_GPU_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-h100-80gb": "NVIDIA_H100",
        "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA",
        "nvidia-h200-141gb": "NVIDIA_H200",
        "nvidia-b200": "NVIDIA_B200",
    }
)
_TPU_FAMILIES: Mapping[str, str] = MappingProxyType(
    {"v4": "CT4P", "v5e": "CT5LP", "v5p": "CT5P", "v6e": "CT6E", "v7x": "TPU7X"}
)
_CPU_QUOTAS: Mapping[str, str] = MappingProxyType(
    {"n1": "CPUS", "e2": "CPUS", "n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS"}
)
"""Family -> quota of its vCPUs; newer ones share CPUS_PER_VM_FAMILY; machines with accelerators are not counted."""

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
    needs[(_cpu_quota(system), "", GCP_SOURCE)] += system.vcpus * platform.system_pool.max_nodes
    needs[(_disk_quota(system_disk_type(platform)), "", GCP_SOURCE)] += SYSTEM_DISK_GB * platform.system_pool.max_nodes
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
        needs[(_disk_quota(plan.disk_type), "", GCP_SOURCE)] += plan.pool.disk_size_gb * plan.nodes
    if plan.tpu is not None:
        name = f"{preemptible}TPUS_PER_TPU_FAMILY (tpu_family: {_TPU_FAMILIES[plan.tpu.generation]})"
        needs[(name, "", TPU_SOURCE)] += plan.nodes * plan.tpu.chips_per_host
    elif plan.gpu is not None:
        if plan.gpu in _GPU_QUOTAS:
            name = f"{preemptible}{_GPU_QUOTAS[plan.gpu]}"
        else:
            name = f"{preemptible}GPUS_PER_GPU_FAMILY (gpu_family: {_GPU_FAMILIES[plan.gpu]})"
        needs[(name, "", GCP_SOURCE)] += plan.nodes * plan.gpus
        if not preemptible:
            needs[("GPUS_ALL_REGIONS", "global", GCP_SOURCE)] += plan.nodes * plan.gpus
    if plan.machine.accelerators == 0:
        needs[(_cpu_quota(plan.machine), "", GCP_SOURCE)] += plan.nodes * plan.machine.vcpus
    return needs


def _disk_quota(disk_type: str) -> str:
    return "HYPERDISK_BALANCED_GB" if disk_type.startswith("hyperdisk") else "SSD_TOTAL_GB"


def _cpu_quota(machine: MachineType) -> str:
    return _CPU_QUOTAS.get(machine.family, f"CPUS_PER_VM_FAMILY (vm_family: {machine.family.upper()})")


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
