"""Topology: how many processes a job has and where, derived from its spec. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workloads.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The shape of a job."""

    hosts: int
    """Number of hosts in all."""
    fewest_hosts: int
    """Number of hosts with which an elastic job still trains; all of them otherwise."""
    slices: int
    """Number of equal groups that the hosts are in: TPU slices."""
    processes_per_host: int
    """Number of training processes on each host."""
    threads_per_process: int
    """Compute threads of each process, so that together they use their host's CPUs once."""

    @property
    def hosts_per_slice(self) -> int:
        """Number of hosts in each group."""
        return self.hosts // self.slices

    @property
    def world_size(self) -> int:
        """Number of training processes."""
        return self.hosts * self.processes_per_host


def topology(spec: JobSpec) -> Topology:
    """The shape that `spec` asks for."""
    cpus = spec.resources.capacity.millicores // 1000
    return Topology(
        hosts=spec.hosts,
        fewest_hosts=spec.elastic.min_hosts if spec.elastic else spec.hosts,
        slices=spec.slices,
        processes_per_host=spec.processes_per_host,
        threads_per_process=max(1, cpus // spec.processes_per_host),
    )
