"""GCE machine families, one row per family with its machine types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.hardware.gpus import GPUS, unknown_accelerator
from infra.hardware.machines import BootDisks, HardwareError, MachineType, find
from infra.hardware.tpus import GENERATIONS, TpuGeneration

SOURCE = "https://cloud.google.com/compute/docs/machine-resource"

_GENERAL = "https://cloud.google.com/compute/docs/general-purpose-machines"
_COMPUTE = "https://cloud.google.com/compute/docs/compute-optimized-machines"
_ACCELERATED = "https://cloud.google.com/compute/docs/accelerator-optimized-machines"
_TPU = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus"

Compact = Literal["default", "allowed", "never", "topology"]
Fabric = Literal["tcpx", "tcpxo", "rdma"]
Pricing = Literal["parts", "series", "gpu", "tpu"]


@dataclass(frozen=True, kw_only=True)
class GceFamily:
    """Machine family: its machine types and their common properties. Each row sets every property."""

    name: str
    """Family, the `family` of its machine types."""
    machines: tuple[MachineType, ...]
    """Machine types, in the order in which error messages list them."""
    disks: BootDisks
    """Boot disks of the family: https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support"""
    compact: Compact
    """Compact placement.

    - `default`: Trainyard uses it by default.
    - `allowed`: Trainyard uses it if the settings request it.
    - `never`: the family does not support it.
    - `topology`: the topology of a TPU slice determines the placement.

    https://cloud.google.com/compute/docs/instances/placement-policies-overview#restrictions,
    https://github.com/dstackai/dstack/issues/2591
    """
    not_on_demand: tuple[str, ...]
    """Machine types that Google offers only as spot, flex-start, queued or reserved.

    https://cloud.google.com/compute/docs/accelerator-optimized-machines#consumption_option_availability_by_machine_type,
    as read in https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/6279,
    https://github.com/dstackai/dstack/issues/3162 and https://github.com/dstackai/gpuhunt/pull/176
    """
    flex_start: bool
    """True if the family supports flex-start: https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""
    queued: bool
    """True if the family supports queued provisioning, from the source of `flex_start`."""
    compact_flex_start: bool
    """True if flex-start and queued nodes can have compact placement."""
    fabric: Fabric | None
    """Additional networks of machine types with all GPUs of a host. `infra/gcp/pools.py` has their interfaces."""
    cpu_quota: str | None
    """Quota of vCPUs, or None for machines with built-in accelerators, which use only the accelerator's quota.

    https://cloud.google.com/compute/resource-usage
    """
    pricing: Pricing
    """Parts with a separate price, in addition to the accelerators.

    - `parts`: vCPUs and GiB of memory.
    - `series`: vCPUs with their memory.
    - `gpu`, `tpu`: none, because the price of the accelerators includes the machine.
    """
    sources: tuple[str, ...]
    """Pages that describe the machine types."""


def _cpus(series: str, gib_per_vcpu: float, *vcpus: int) -> tuple[MachineType, ...]:
    """Return the machine types of a series without accelerators."""
    return tuple(
        MachineType(name=f"{series}-{size}", family=series.split("-")[0], vcpus=size, memory_gib=gib_per_vcpu * size)
        for size in vcpus
    )


def _shared_quota(family: str) -> str:
    """Return the quota that newer families share, which has a limit for each family."""
    return f"CPUS_PER_VM_FAMILY (vm_family: {family})"


_N1 = (
    *_cpus("n1-standard", 3.75, 1, 2, 4, 8, 16, 32, 64, 96),
    *_cpus("n1-highmem", 6.5, 2, 4, 8, 16, 32, 64, 96),
    *_cpus("n1-highcpu", 0.9, 2, 4, 8, 16, 32, 64, 96),
)
_N2 = (
    *_cpus("n2-standard", 4, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    *_cpus("n2-highmem", 8, 2, 4, 8, 16, 32, 48, 64, 80, 96),
)
_N2D = _cpus("n2d-standard", 4, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)
_E2 = (*_cpus("e2-standard", 4, 2, 4, 8, 16, 32), *_cpus("e2-highmem", 8, 2, 4, 8, 16))
_C2 = _cpus("c2-standard", 4, 4, 8, 16, 30, 60)
_C3 = _cpus("c3-standard", 4, 4, 8, 22, 44, 88, 176)
_C4 = (*_cpus("c4-standard", 3.5, 2), *_cpus("c4-standard", 3.75, 4, 8, 16, 24, 32, 48, 96, 192))
_CPU_ROWS: tuple[tuple[tuple[MachineType, ...], BootDisks, Compact, str, Pricing, str], ...] = (
    # machine types, boot disks, compact placement, quota of vCPUs, priced parts, source
    (_N1, "no-hyperdisk", "never", "CPUS", "parts", _GENERAL),
    (_N2, "no-hyperdisk", "allowed", "N2_CPUS", "parts", _GENERAL),
    (_N2D, "no-hyperdisk", "allowed", "N2D_CPUS", "parts", _GENERAL),
    (_E2, "no-hyperdisk", "never", "CPUS", "parts", _GENERAL),
    (_C2, "any", "allowed", "C2_CPUS", "parts", _COMPUTE),
    (_C3, "ssd", "allowed", _shared_quota("C3"), "parts", _GENERAL),
    (_C4, "hyperdisk", "allowed", _shared_quota("C4"), "series", _GENERAL),
)
_CPU_FAMILIES = tuple(
    GceFamily(
        name=machines[0].family,
        machines=machines,
        disks=disks,
        compact=compact,
        not_on_demand=(),
        # Dynamic Workload Scheduler and fabrics are for accelerators.
        flex_start=False,
        queued=False,
        compact_flex_start=False,
        fabric=None,
        cpu_quota=quota,
        pricing=pricing,
        sources=(source,),
    )
    for machines, disks, compact, quota, pricing, source in _CPU_ROWS
)


def _gpu_family(
    name: str,
    gpu: str,
    sizes: Mapping[str, tuple[int, int, float, int]],
    *,
    disks: BootDisks,
    compact: Compact,
    compact_flex_start: bool,
    fabric: Fabric | None,
    pricing: Pricing,
    sources: tuple[str, ...],
    not_on_demand: tuple[str, ...] = (),
) -> GceFamily:
    """Return a family with GPUs. `sizes` is name -> GPUs, vCPUs, GiB, local SSDs.

    Dynamic Workload Scheduler supports all these families. Only their GPUs need quota.
    """
    return GceFamily(
        name=name,
        machines=tuple(
            MachineType(name=size, family=name, vcpus=vcpus, memory_gib=memory, gpu=gpu, gpus=gpus, local_ssds=ssds)
            for size, (gpus, vcpus, memory, ssds) in sizes.items()
        ),
        disks=disks,
        compact=compact,
        not_on_demand=not_on_demand,
        flex_start=True,
        queued=True,
        compact_flex_start=compact_flex_start,
        fabric=fabric,
        cpu_quota=None,
        pricing=pricing,
        sources=sources,
    )


_GPU_FAMILIES = (
    _gpu_family(
        "g2",
        "nvidia-l4",
        {
            "g2-standard-4": (1, 4, 16, 0),
            "g2-standard-8": (1, 8, 32, 0),
            "g2-standard-12": (1, 12, 48, 0),
            "g2-standard-16": (1, 16, 64, 0),
            "g2-standard-32": (1, 32, 128, 0),
            "g2-standard-24": (2, 24, 96, 0),
            "g2-standard-48": (4, 48, 192, 0),
            "g2-standard-96": (8, 96, 384, 0),
        },
        disks="ssd",
        compact="allowed",
        compact_flex_start=False,
        fabric=None,
        pricing="parts",
        sources=(_ACCELERATED,),
    ),
    # Google documents flex-start and queued provisioning for accelerator-optimised GPU machines, without naming G4.
    _gpu_family(
        "g4",
        "nvidia-rtx-pro-6000",
        {
            "g4-standard-48": (1, 48, 180, 0),
            "g4-standard-96": (2, 96, 360, 0),
            "g4-standard-192": (4, 192, 720, 0),
            "g4-standard-384": (8, 384, 1440, 0),
        },
        disks="hyperdisk",
        compact="allowed",
        compact_flex_start=False,
        fabric=None,
        pricing="series",
        sources=(
            _ACCELERATED,
            # Sizes and prices, disks, and compact placement.
            "https://github.com/skypilot-org/skypilot/pull/10533",
            "https://github.com/skypilot-org/skypilot/pull/9634",
            "https://docs.cloud.google.com/ai-hypercomputer/docs/placement-policy-and-workload-policy",
        ),
    ),
    _gpu_family(
        "a2-highgpu",
        "nvidia-tesla-a100",
        {
            "a2-highgpu-1g": (1, 12, 85, 0),
            "a2-highgpu-2g": (2, 24, 170, 0),
            "a2-highgpu-4g": (4, 48, 340, 0),
            "a2-highgpu-8g": (8, 96, 680, 0),
            "a2-megagpu-16g": (16, 96, 1360, 0),
        },
        disks="no-hyperdisk",
        compact="default",
        compact_flex_start=False,
        fabric=None,
        pricing="parts",
        sources=(_ACCELERATED,),
    ),
    _gpu_family(
        "a2-ultragpu",
        "nvidia-a100-80gb",
        {
            "a2-ultragpu-1g": (1, 12, 170, 1),
            "a2-ultragpu-2g": (2, 24, 340, 2),
            "a2-ultragpu-4g": (4, 48, 680, 4),
            "a2-ultragpu-8g": (8, 96, 1360, 8),
        },
        disks="no-hyperdisk",
        compact="default",
        compact_flex_start=False,
        fabric=None,
        pricing="parts",
        sources=(_ACCELERATED,),
    ),
    _gpu_family(
        "a3-highgpu",
        "nvidia-h100-80gb",
        {
            "a3-highgpu-1g": (1, 26, 234, 2),
            "a3-highgpu-2g": (2, 52, 468, 4),
            "a3-highgpu-4g": (4, 104, 936, 8),
            "a3-highgpu-8g": (8, 208, 1872, 16),
        },
        disks="ssd",
        compact="default",
        compact_flex_start=False,
        fabric="tcpx",
        pricing="series",
        sources=(_ACCELERATED,),
        not_on_demand=("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"),
    ),
    _gpu_family(
        "a3-megagpu",
        "nvidia-h100-mega-80gb",
        {"a3-megagpu-8g": (8, 208, 1872, 16)},
        disks="ssd",
        compact="default",
        compact_flex_start=False,
        fabric="tcpxo",
        pricing="series",
        sources=(_ACCELERATED,),
    ),
    _gpu_family(
        "a3-ultragpu",
        "nvidia-h200-141gb",
        {"a3-ultragpu-8g": (8, 224, 2952, 32)},
        disks="hyperdisk",
        compact="default",
        compact_flex_start=True,
        fabric="rdma",
        pricing="series",
        sources=(_ACCELERATED,),
        not_on_demand=("a3-ultragpu-8g",),
    ),
    _gpu_family(
        "a4-highgpu",
        "nvidia-b200",
        {"a4-highgpu-8g": (8, 224, 3968, 32)},
        disks="hyperdisk",
        compact="default",
        compact_flex_start=True,
        fabric="rdma",
        pricing="gpu",
        sources=(_ACCELERATED,),
        not_on_demand=("a4-highgpu-8g",),
    ),
)


def _tpu_family(row: TpuGeneration) -> GceFamily:
    return GceFamily(
        name=row.name,
        machines=tuple(
            MachineType(name=name, family=row.name, vcpus=vcpus, memory_gib=memory, tpu_chips=chips)
            for chips, (name, vcpus, memory) in row.hosts.items()
        ),
        disks=row.disks,
        compact="topology",
        not_on_demand=(),
        flex_start=row.flex_start,
        queued=False,
        compact_flex_start=False,
        fabric=None,
        cpu_quota=None,
        pricing="tpu",
        sources=(_TPU,),
    )


GCE_FAMILIES: Mapping[str, GceFamily] = {
    row.name: row for row in (*_CPU_FAMILIES, *_GPU_FAMILIES, *map(_tpu_family, GENERATIONS.values()))
}
"""Machine families by name."""
GCE_MACHINES: Mapping[str, MachineType] = {
    machine.name: machine for family in GCE_FAMILIES.values() for machine in family.machines
}
"""GCE machine types by name."""
ACCELERATOR_PREFIXES = tuple(
    sorted({f"{machine.name.partition('-')[0]}-" for machine in GCE_MACHINES.values() if machine.accelerators})
)
"""Prefixes of machine types with built-in accelerators."""


def gce_family(machine: MachineType) -> GceFamily:
    """Return the family of a machine type."""
    return GCE_FAMILIES[machine.family]


def disk_quota(disk_type: str) -> str:
    """Return the quota of a disk type other than pd-standard. Other quotas limit pd-standard first."""
    return "HYPERDISK_BALANCED_GB" if disk_type.startswith("hyperdisk") else "SSD_TOTAL_GB"


def gce_machine(name: str) -> MachineType:
    """Return the machine type of that name. Raises HardwareError if it is not in the table."""
    return find(name, GCE_MACHINES, SOURCE)


def gpus_on(machine: MachineType, gpu: str | None, count: int | None) -> tuple[str | None, int]:
    """Return model and number of a node's GPUs. Raises HardwareError with the key to change and the allowed values.

    N1 supports T4 or V100 in fixed numbers. A machine type with built-in GPUs does not support other GPUs. Other
    families do not support GPUs. Rules: https://cloud.google.com/compute/docs/gpus#n1-gpus
    """
    if gpu is not None and gpu not in GPUS:
        raise HardwareError("accelerator_unknown", "accelerator", unknown_accelerator(gpu))
    if machine.gpu is not None:
        if gpu not in (None, machine.gpu):
            raise HardwareError(
                "gpu_of_machine",
                "machine_type",
                f"{machine.name} has {machine.gpu}; write {machine.gpu} as accelerator, or remove the accelerator",
            )
        if count not in (None, machine.gpus):
            raise HardwareError(
                "gpu_count_of_machine",
                "accelerators_per_node",
                f"{machine.name} has exactly {machine.gpus} GPUs; write {machine.gpus}, or remove this key",
            )
        return machine.gpu, machine.gpus
    if gpu is None:
        return None, 0
    attachment = GPUS[gpu].attachment
    if attachment is None:
        suitable = ", ".join(row.name for row in GCE_MACHINES.values() if row.gpu == gpu)
        remedy = f"write one of {suitable}" if suitable else "no machine type of GCE does; write another accelerator"
        raise HardwareError("gpu_of_other_machines", "machine_type", f"{machine.name} does not support {gpu}; {remedy}")
    if machine.family != "n1":
        raise HardwareError(
            "machine_without_gpus",
            "machine_type",
            f"{machine.name} does not support GPUs; {gpu} requires the N1 family; write for example n1-standard-8",
        )
    number = 1 if count is None else count
    if number not in attachment.largest_machine:
        allowed = ", ".join(map(str, attachment.counts))
        raise HardwareError(
            "gpu_count", "accelerators_per_node", f"N1 machines cannot have {number} x {gpu}; write one of {allowed}"
        )
    vcpus, memory = attachment.largest_machine[number]
    if machine.vcpus > vcpus or machine.memory_gib > memory:
        raise HardwareError(
            "machine_too_large",
            "machine_type",
            f"{machine.name} is too large for {number} x {gpu}; at most {vcpus} vCPUs and {memory:g} GiB are allowed; "
            "write a smaller machine type or more GPUs",
        )
    return gpu, number
