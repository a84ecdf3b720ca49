"""Registry of the kinds of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from infra.naming import KUEUE
from workloads.kinds.indexed_job import IndexedJob
from workloads.kinds.jobset import JobSet
from workloads.kinds.kind import Kind
from workloads.kinds.mpi_job import MPIJob
from workloads.kinds.ray_job import RayJob
from workloads.kinds.train_job import TrainJob
from workloads.kinds.training_operator import MXJob, PyTorchJob

if TYPE_CHECKING:
    from workloads.spec import JobSpec

DEFAULT = IndexedJob()
"""Kind of a job that does not set `kind`. It needs no operator."""
KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for kind in (DEFAULT, PyTorchJob(), MPIJob(), MXJob(), JobSet(), TrainJob(), RayJob())}
)
"""Value of a job's `kind` -> its Kind."""


def operators_of(jobs: Iterable[JobSpec]) -> frozenset[str]:
    """Return the names of all operators that the jobs need: those of their kinds, and Kueue for jobs in a queue."""
    return frozenset().union(*(KINDS[job.kind].operators | ({KUEUE} if job.queue else set()) for job in jobs))


def kinds_where(is_able: Callable[[Kind], object]) -> str:
    """Return the kinds for which `is_able` is True, as text such as "`kind: jobset`, or else train-job"."""
    first, *others = (name for name, kind in KINDS.items() if is_able(kind))
    return f"`kind: {first}`{', or else ' if others else ''}{' or '.join(others)}"
