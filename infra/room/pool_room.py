"""PoolRoom: what the nodes of one pool have together for the jobs of queues. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.hardware import Capacity


@dataclass(frozen=True, kw_only=True)
class PoolRoom:
    """Equal nodes, all of them together, less what jobs without a queue ask of them."""

    pool: str
    """Name of the pool."""
    room: Capacity
    """CPUs and memory."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Accelerators and network adapters by Kubernetes' names."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes, by which pods say that they are for this pool."""
    on_request: bool = False
    """Whether its nodes come only when they are asked for, all that a job needs at once."""
    taint: str | None = None
    """Key of the taint that keeps other pods away."""
