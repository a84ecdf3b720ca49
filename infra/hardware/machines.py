"""MachineType: a cloud's machine type. ProvisioningModel: a pool's provisioning model, such as spot."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from infra.hardware import GIBIBYTE, Capacity

HardwareKey = Literal["accelerator", "accelerators_per_node", "machine_type", "topology"]
"""Key of a node pool's hardware settings."""
BootDisks = Literal["any", "no-hyperdisk", "ssd", "hyperdisk"]
"""Boot disks of a GCE family.

- `any`: all types.
- `no-hyperdisk`: all but Hyperdisk.
- `ssd`: all but pd-standard.
- `hyperdisk`: only Hyperdisk.
"""
ModelKind = Literal["on-demand", "spot", "flex-start", "queued", "reservation", "capacity-block"]
_KINDS: dict[str, ModelKind] = {kind: kind for kind in get_args(ModelKind)}


class HardwareError(ValueError):
    """Invalid hardware or combination of hardware. `key` is the setting to change; `code` identifies the rule."""

    def __init__(self, code: str, key: HardwareKey, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.key: HardwareKey = key


@dataclass(frozen=True, kw_only=True)
class MachineType:
    """GCE machine type or EC2 instance type."""

    name: str
    """Name in the cloud."""
    family: str
    """Machine family. Its members have the same quota and provisioning models."""
    vcpus: int
    memory_gib: float
    """Memory in GiB."""
    gpu: str | None = None
    """Model of the built-in GPUs, a key of `GPUS`."""
    gpus: int = 0
    """Number of built-in GPUs."""
    tpu_chips: int = 0
    local_ssds: int = 0
    """Number of built-in local NVMe disks."""

    @property
    def capacity(self) -> Capacity:
        """CPUs and memory of the machine."""
        return Capacity(millicores=self.vcpus * 1000, memory=int(self.memory_gib * GIBIBYTE))

    @property
    def accelerators(self) -> int:
        """Number of built-in GPUs or TPU chips."""
        return self.gpus + self.tpu_chips


def zone_set(text: str) -> frozenset[str]:
    """Return the Google Cloud zones of a text such as `us-east1 b c, us-west1 a`: three zones in two regions."""
    rows = [row.split() for row in text.split(",")]
    return frozenset(f"{region}-{letter}" for region, *letters in rows for letter in letters)


def reserved_millicores(vcpus: int) -> int:
    """Return the millicores that GKE and EKS reserve on a node.

    They reserve 6 % of the first CPU, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest.
    """
    second, next_two, others = min(vcpus - 1, 1), min(max(vcpus - 2, 0), 2), max(vcpus - 4, 0)
    return 60 + second * 10 + next_two * 5 + others * 5 // 2


def find(name: str, table: Mapping[str, MachineType], source: str) -> MachineType:
    """Return the machine type of that name.

    Raises HardwareError with similar names and the page that lists all types.
    """
    if name in table:
        return table[name]
    similar = difflib.get_close_matches(name, table, n=3) or _similar_names(name, table)
    families = ", ".join(sorted({machine.family for machine in table.values()}))
    remedy = f"write one of {', '.join(similar)}" if similar else f"write a machine type of the families: {families}"
    raise HardwareError(
        "machine_unknown", "machine_type", f"is not a machine type that Trainyard knows; {remedy}; see {source}"
    )


def _similar_names(name: str, table: Mapping[str, MachineType]) -> list[str]:
    """Return up to eight names of the same family, by the prefix of the name."""
    family = name.replace(".", "-").partition("-")[0]
    return [machine for machine in table if machine.replace(".", "-").partition("-")[0] == family][:8]


@dataclass(frozen=True, kw_only=True)
class ProvisioningModel:
    """Provisioning model: https://cloud.google.com/compute/docs/instances/provisioning-models."""

    kind: ModelKind
    """Kind of the model, as in the settings."""
    reservation: str | None = None
    """Name or id of the reservation or capacity block of the nodes."""

    @classmethod
    def parse(cls, text: str) -> ProvisioningModel:
        """Return the model of `KIND` or `KIND:RESERVATION`. Raises KeyError for an unknown kind."""
        kind, _, reservation = text.partition(":")
        return cls(kind=_KINDS[kind], reservation=reservation or None)

    def __str__(self) -> str:
        return f"{self.kind}:{self.reservation}" if self.reservation else self.kind

    @property
    def is_on_demand(self) -> bool:
        """True if the cloud creates the nodes immediately or not at all."""
        return self.kind == "on-demand"

    @property
    def is_spot(self) -> bool:
        """True if the cloud can reclaim the nodes at any time."""
        return self.kind == "spot"

    @property
    def is_queued(self) -> bool:
        """True if the cloud creates nodes when a queue requests them."""
        return self.kind == "queued"

    @property
    def is_flexible(self) -> bool:
        """True if Dynamic Workload Scheduler provisions the nodes."""
        return self.kind in ("flex-start", "queued")

    @property
    def is_reserved(self) -> bool:
        """True if the nodes come from a reservation."""
        return self.kind == "reservation"

    @property
    def is_capacity_block(self) -> bool:
        """True if the nodes come from an EC2 capacity block."""
        return self.kind == "capacity-block"


@dataclass(frozen=True, kw_only=True)
class NcclEnvironmentScript:
    """Script in a folder of libraries on the host. It sets NCCL's environment variables.

    Pods mount the folder through a claim, because they may not mount host paths.
    """

    claim: str
    """Name of the claim in the jobs' namespace."""
    folder: str
    """Folder on the host. A pod does not start before the folder exists."""
    mount: str
    """Read-only mount path in pods."""
    script: str
    """Shell script that sets the environment before programs start."""
