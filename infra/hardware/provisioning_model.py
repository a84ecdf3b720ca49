"""ProvisioningModel: a pool's way to get nodes, such as spot; and the script with a host's NCCL environment. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ModelKind = Literal["on-demand", "spot", "flex-start", "queued", "reservation", "capacity-block"]
_KINDS: dict[str, ModelKind] = {
    "on-demand": "on-demand",
    "spot": "spot",
    "flex-start": "flex-start",
    "queued": "queued",
    "reservation": "reservation",
    "capacity-block": "capacity-block",
}


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
    """Script that sets NCCL's environment, in a folder of libraries on the host.

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
