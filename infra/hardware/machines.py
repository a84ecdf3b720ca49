"""MachineType: what a virtual machine of a cloud has, and what of it a node's pods can have. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from infra.hardware.capacity import Capacity

GIBIBYTE = 2**30

HardwareKey = Literal["accelerator", "accelerators_per_node", "machine_type", "topology"]
"""A setting of a node pool that chooses hardware."""


class HardwareError(ValueError):
    """Hardware that does not exist or does not go together. `key` is the setting to change."""

    def __init__(self, key: HardwareKey, message: str) -> None:
        super().__init__(message)
        self.key: HardwareKey = key


@dataclass(frozen=True, kw_only=True)
class MachineType:
    """A machine type of GCE or an instance type of EC2."""

    name: str
    """The cloud's name."""
    family: str
    """Machine family. Its members share quota, capacity options and network."""
    vcpus: int
    """Virtual CPUs."""
    memory_gib: float
    """Memory in GiB."""
    gpu: str | None = None
    """Model of the GPUs that it carries by itself, a key of `GPUS`."""
    gpus: int = 0
    """Number of those GPUs."""
    tpu_chips: int = 0
    """Number of TPU chips that it carries."""
    local_ssds: int = 0
    """Local NVMe disks that come with it."""

    @property
    def capacity(self) -> Capacity:
        """CPUs and memory of the machine."""
        return Capacity(millicores=self.vcpus * 1000, memory=int(self.memory_gib * GIBIBYTE))

    @property
    def accelerators(self) -> int:
        """GPUs or TPU chips that it carries by itself."""
        return self.gpus + self.tpu_chips


def kept_cpu(vcpus: int) -> int:
    """Return the reserved millicores: 6 % of the first CPU, 1 % of the second, 0.5 % of two, 0.25 % of the others."""
    second, next_two, others = min(vcpus - 1, 1), min(max(vcpus - 2, 0), 2), max(vcpus - 4, 0)
    return 60 + second * 10 + next_two * 5 + others * 5 // 2


def find(name: str, table: Mapping[str, MachineType], source: str) -> MachineType:
    """Return the machine type of that name. Raises HardwareError with similar names and the page that lists all."""
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=3) or _relatives(name, table)
    remedy = f"write one of {', '.join(near)}" if near else f"families: {', '.join(_families(table.values()))}"
    raise HardwareError("machine_type", f"is not a machine type that Trainyard knows; {remedy}; {source}")


def _relatives(name: str, table: Mapping[str, MachineType]) -> list[str]:
    """Return some names of the same family, by the prefix of the cloud's names."""
    family = name.replace(".", "-").partition("-")[0]
    return [each for each in table if each.replace(".", "-").partition("-")[0] == family][:8]


def _families(machines: Iterable[MachineType]) -> list[str]:
    return sorted({machine.family for machine in machines})
