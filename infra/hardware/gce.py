"""GCE machine types: CPU families, N1 with attached GPUs, and GPU and TPU machines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from infra.hardware.accelerators import what_is_one
from infra.hardware.gpus import GPUS
from infra.hardware.machines import HardwareError, MachineType, find
from infra.hardware.tpus import GENERATIONS

SOURCE = "https://cloud.google.com/compute/docs/machine-resource"

_CPU_FAMILIES: Mapping[str, tuple[float, tuple[int, ...]]] = {
    "n1-standard": (3.75, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n1-highmem": (6.5, (2, 4, 8, 16, 32, 64, 96)),
    "n1-highcpu": (0.9, (2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highmem": (8, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2d-standard": (4, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)),
    "e2-standard": (4, (2, 4, 8, 16, 32)),
    "e2-highmem": (8, (2, 4, 8, 16)),
    "c2-standard": (4, (4, 8, 16, 30, 60)),
    "c3-standard": (4, (4, 8, 22, 44, 88, 176)),
    "c4-standard": (3.75, (2, 4, 8, 16, 24, 32, 48, 96, 192)),
}
"""GiB for each vCPU, and allowed numbers of vCPUs, of each CPU family.

https://cloud.google.com/compute/docs/general-purpose-machines
"""

_GPU_MACHINES = (
    # family, GPU, (name, GPUs, vCPUs, GiB, local SSDs); https://cloud.google.com/compute/docs/accelerator-optimized-machines
    ("g2", "nvidia-l4", (("g2-standard-4", 1, 4, 16, 0), ("g2-standard-8", 1, 8, 32, 0))),
    ("g2", "nvidia-l4", (("g2-standard-12", 1, 12, 48, 0), ("g2-standard-16", 1, 16, 64, 0))),
    ("g2", "nvidia-l4", (("g2-standard-32", 1, 32, 128, 0), ("g2-standard-24", 2, 24, 96, 0))),
    ("g2", "nvidia-l4", (("g2-standard-48", 4, 48, 192, 0), ("g2-standard-96", 8, 96, 384, 0))),
    ("a2-highgpu", "nvidia-tesla-a100", (("a2-highgpu-1g", 1, 12, 85, 0), ("a2-highgpu-2g", 2, 24, 170, 0))),
    ("a2-highgpu", "nvidia-tesla-a100", (("a2-highgpu-4g", 4, 48, 340, 0), ("a2-highgpu-8g", 8, 96, 680, 0))),
    ("a2-highgpu", "nvidia-tesla-a100", (("a2-megagpu-16g", 16, 96, 1360, 0),)),
    ("a2-ultragpu", "nvidia-a100-80gb", (("a2-ultragpu-1g", 1, 12, 170, 1), ("a2-ultragpu-2g", 2, 24, 340, 2))),
    ("a2-ultragpu", "nvidia-a100-80gb", (("a2-ultragpu-4g", 4, 48, 680, 4), ("a2-ultragpu-8g", 8, 96, 1360, 8))),
    ("a3-highgpu", "nvidia-h100-80gb", (("a3-highgpu-1g", 1, 26, 234, 2), ("a3-highgpu-2g", 2, 52, 468, 4))),
    ("a3-highgpu", "nvidia-h100-80gb", (("a3-highgpu-4g", 4, 104, 936, 8), ("a3-highgpu-8g", 8, 208, 1872, 16))),
    ("a3-megagpu", "nvidia-h100-mega-80gb", (("a3-megagpu-8g", 8, 208, 1872, 16),)),
    ("a3-ultragpu", "nvidia-h200-141gb", (("a3-ultragpu-8g", 8, 224, 2952, 32),)),
    ("a4-highgpu", "nvidia-b200", (("a4-highgpu-8g", 8, 224, 3968, 32),)),
)

_TPU_MACHINES: Mapping[str, tuple[int, float]] = {
    # vCPUs and GiB of each machine type; https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
    "ct4p-hightpu-4t": (240, 407),
    "ct5lp-hightpu-1t": (24, 48),
    "ct5lp-hightpu-4t": (112, 192),
    "ct5lp-hightpu-8t": (224, 384),
    "ct5p-hightpu-4t": (208, 448),
    "ct6e-standard-1t": (44, 176),
    "ct6e-standard-4t": (180, 720),
    "ct6e-standard-8t": (180, 1440),
    "tpu7x-standard-1t": (56, 240),
    "tpu7x-standard-4t": (224, 960),
}


def _machines() -> Iterator[MachineType]:
    for family, (memory, sizes) in _CPU_FAMILIES.items():
        for size in sizes:
            name = f"{family}-{size}"
            yield MachineType(name=name, family=family.split("-")[0], vcpus=size, memory_gib=memory * size)
    for family, gpu, rows in _GPU_MACHINES:
        for name, gpus, vcpus, gibibytes, disks in rows:
            yield MachineType(
                name=name, family=family, vcpus=vcpus, memory_gib=gibibytes, gpu=gpu, gpus=gpus, local_ssds=disks
            )
    for generation in GENERATIONS.values():
        for chips, name in generation.machine_types.items():
            vcpus, memory = _TPU_MACHINES[name]
            yield MachineType(name=name, family=generation.name, vcpus=vcpus, memory_gib=memory, tpu_chips=chips)


GCE_MACHINES: Mapping[str, MachineType] = MappingProxyType({machine.name: machine for machine in _machines()})
"""GCE machine types by name."""


def gce_machine(name: str) -> MachineType:
    """Return the machine type of that name. Raises HardwareError if it is not in the table."""
    return find(name, GCE_MACHINES, SOURCE)


def gpus_on(machine: MachineType, gpu: str | None, count: int | None) -> tuple[str | None, int]:
    """Return model and number of a node's GPUs. Raises HardwareError with the key to change and the allowed values.

    N1 supports T4 or V100 in fixed numbers. A machine type with built-in GPUs supports no other GPUs. Other families
    support none. Rules: https://cloud.google.com/compute/docs/gpus#n1-gpus
    """
    if gpu is not None and gpu not in GPUS:
        raise HardwareError("accelerator_unknown", "accelerator", what_is_one(gpu))
    if machine.gpu is not None:
        if gpu not in (None, machine.gpu):
            raise HardwareError(
                "gpu_of_machine",
                "machine_type",
                f"{machine.name} has {machine.gpu}; write that or remove the accelerator",
            )
        if count not in (None, machine.gpus):
            raise HardwareError(
                "gpu_count_of_machine",
                "accelerators_per_node",
                f"{machine.name} has exactly {machine.gpus} GPUs; write {machine.gpus} or remove it",
            )
        return machine.gpu, machine.gpus
    if gpu is None:
        return None, 0
    attachment = GPUS[gpu].attachment
    if attachment is None:
        carriers = ", ".join(each.name for each in GCE_MACHINES.values() if each.gpu == gpu) or "no machine type of GCE"
        raise HardwareError(
            "gpu_of_other_machines",
            "machine_type",
            f"{machine.name} does not support {gpu}, which is available with {carriers}",
        )
    if machine.family != "n1":
        raise HardwareError(
            "machine_without_gpus",
            "machine_type",
            f"{machine.name} does not support GPUs; {gpu} needs the N1 family, such as n1-standard-8",
        )
    number = 1 if count is None else count
    if number not in attachment.largest_machine:
        allowed = ", ".join(map(str, attachment.counts))
        raise HardwareError(
            "gpu_count", "accelerators_per_node", f"{number} x {gpu} cannot be attached; write one of {allowed}"
        )
    vcpus, memory = attachment.largest_machine[number]
    if machine.vcpus > vcpus or machine.memory_gib > memory:
        raise HardwareError(
            "machine_too_large",
            "machine_type",
            f"{machine.name} is too large for {number} x {gpu}: at most {vcpus} vCPUs and {memory:g} GiB; "
            "take a smaller machine type or more GPUs",
        )
    return gpu, number
