"""ProcessLayout: number of a job's processes and how they are divided among hosts, derived from its spec. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workloads.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class ProcessLayout:
    """Process layout of a job."""

    hosts: int
    """Total number of hosts."""
    min_hosts: int
    """Minimum number of hosts of an elastic job; for other jobs equal to `hosts`."""
    slices: int
    """Number of TPU slices, which divide the hosts into equal groups."""
    processes_per_host: int
    """Number of training processes on each host."""
    threads_per_process: int
    """Compute threads of each process: the host's CPUs divided among its processes."""

    @property
    def hosts_per_slice(self) -> int:
        """Number of hosts in each slice."""
        return self.hosts // self.slices

    @property
    def world_size(self) -> int:
        """Number of training processes."""
        return self.hosts * self.processes_per_host


def process_layout(spec: JobSpec) -> ProcessLayout:
    """Return the process layout of `spec`."""
    cpus = spec.resources.capacity.millicores // 1000
    return ProcessLayout(
        hosts=spec.hosts,
        min_hosts=spec.elastic.min_hosts if spec.elastic else spec.hosts,
        slices=spec.slices,
        processes_per_host=spec.processes_per_host,
        threads_per_process=max(1, cpus // spec.processes_per_host),
    )
