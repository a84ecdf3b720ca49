"""EC2 instance types: CPU families, GPU instances and their Elastic Fabric Adapters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from infra.hardware.machines import MachineType, find

SOURCE = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html"


@dataclass(frozen=True, kw_only=True)
class Ec2Machine(MachineType):
    """EC2 instance type."""

    efa_interfaces: int = 0
    """Maximum number of Elastic Fabric Adapters. It is 0 for a type without EFA.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    capacity_block: bool = False
    """True if capacity blocks support it:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html"""


_SIZES: Mapping[str, int] = {
    "large": 2,
    "xlarge": 4,
    "2xlarge": 8,
    "4xlarge": 16,
    "8xlarge": 32,
    "12xlarge": 48,
    "16xlarge": 64,
    "24xlarge": 96,
}
"""Number of vCPUs of each size: https://docs.aws.amazon.com/ec2/latest/instancetypes/gp.html"""
_CPU_FAMILIES: Mapping[str, float] = {"m5": 4, "m6i": 4, "m7i": 4, "c6i": 2, "c7i": 2, "r6i": 8, "r7i": 8}
"""GiB for each vCPU of a CPU family."""

_GPU_INSTANCES = (
    # GPU, then name: GPUs, vCPUs, GiB, EFA interfaces, capacity blocks
    (
        "nvidia-tesla-t4",
        {
            "g4dn.xlarge": (1, 4, 16, 0, False),
            "g4dn.2xlarge": (1, 8, 32, 0, False),
            "g4dn.4xlarge": (1, 16, 64, 0, False),
            "g4dn.8xlarge": (1, 32, 128, 1, False),
            "g4dn.12xlarge": (4, 48, 192, 1, False),
            "g4dn.16xlarge": (1, 64, 256, 1, False),
            "g4dn.metal": (8, 96, 384, 1, False),
        },
    ),
    (
        "nvidia-a10g",
        {
            "g5.xlarge": (1, 4, 16, 0, False),
            "g5.2xlarge": (1, 8, 32, 0, False),
            "g5.4xlarge": (1, 16, 64, 0, False),
            "g5.8xlarge": (1, 32, 128, 1, False),
            "g5.12xlarge": (4, 48, 192, 1, False),
            "g5.16xlarge": (1, 64, 256, 1, False),
            "g5.24xlarge": (4, 96, 384, 1, False),
            "g5.48xlarge": (8, 192, 768, 1, False),
        },
    ),
    (
        "nvidia-l4",
        {
            "g6.xlarge": (1, 4, 16, 0, False),
            "g6.2xlarge": (1, 8, 32, 0, False),
            "g6.4xlarge": (1, 16, 64, 0, False),
            "g6.8xlarge": (1, 32, 128, 1, False),
            "g6.12xlarge": (4, 48, 192, 1, False),
            "g6.16xlarge": (1, 64, 256, 1, False),
            "g6.24xlarge": (4, 96, 384, 1, False),
            "g6.48xlarge": (8, 192, 768, 1, False),
        },
    ),
    (
        "nvidia-tesla-v100",
        {
            "p3.2xlarge": (1, 8, 61, 0, False),
            "p3.8xlarge": (4, 32, 244, 0, False),
            "p3.16xlarge": (8, 64, 488, 0, False),
            "p3dn.24xlarge": (8, 96, 768, 1, False),
        },
    ),
    ("nvidia-tesla-a100", {"p4d.24xlarge": (8, 96, 1152, 4, True)}),
    ("nvidia-a100-80gb", {"p4de.24xlarge": (8, 96, 1152, 4, True)}),
    ("nvidia-h100-80gb", {"p5.48xlarge": (8, 192, 2048, 32, True)}),
    ("nvidia-h200-141gb", {"p5e.48xlarge": (8, 192, 2048, 32, True), "p5en.48xlarge": (8, 192, 2048, 16, True)}),
    ("nvidia-b200", {"p6-b200.48xlarge": (8, 192, 2048, 8, True)}),
)


def _instances() -> Iterator[Ec2Machine]:
    for family, memory in _CPU_FAMILIES.items():
        for size, vcpus in _SIZES.items():
            yield Ec2Machine(name=f"{family}.{size}", family=family, vcpus=vcpus, memory_gib=memory * vcpus)
    for gpu, rows in _GPU_INSTANCES:
        for name, (gpus, vcpus, memory, adapters, blocks) in rows.items():
            yield Ec2Machine(
                name=name,
                family=name.split(".")[0],
                vcpus=vcpus,
                memory_gib=memory,
                gpu=gpu,
                gpus=gpus,
                efa_interfaces=adapters,
                capacity_block=blocks,
            )


EC2_MACHINES: Mapping[str, Ec2Machine] = MappingProxyType({machine.name: machine for machine in _instances()})
"""EC2 instance types by name."""


def ec2_machine(name: str) -> Ec2Machine:
    """Return the instance type of that name. Raises HardwareError if it is not in the table."""
    find(name, EC2_MACHINES, SOURCE)
    return EC2_MACHINES[name]
