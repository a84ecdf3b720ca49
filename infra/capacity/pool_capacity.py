"""PoolCapacity: what queued jobs can request of the nodes of a pool. No Pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.hardware import Capacity


@dataclass(frozen=True, kw_only=True)
class PoolCapacity:
    """Capacity of identical nodes, minus the requests of jobs without a queue."""

    name: str
    """Name of the pool."""
    free: Capacity
    """CPUs and memory that queued jobs can request."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Accelerators and network adapters, by Kubernetes resource."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes, by which pods select this pool."""
    on_request: bool = False
    """True if nodes are created only on request, all nodes of a job at once."""
    taint: str | None = None
    """Key of the taint that keeps other pods off the nodes."""
