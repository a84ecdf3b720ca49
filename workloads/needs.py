"""Which operators jobs need in their cluster: those of their kinds, and Kueue for a queue. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from infra.naming import KUEUE
from workloads.spec import JobKind, JobSpec

OPERATORS: Mapping[JobKind, frozenset[str]] = MappingProxyType(
    {
        "indexed-job": frozenset(),
        "pytorch-job": frozenset({"training-operator"}),
        "mpi-job": frozenset({"mpi-operator"}),
        "mx-job": frozenset({"training-operator-mxjob"}),
        "jobset": frozenset({"jobset"}),
        "train-job": frozenset({"trainer", "jobset"}),
    }
)
"""Names of operators, as in infra/operators/releases.py, by the kind of job."""


def operators_of(jobs: Iterable[JobSpec]) -> frozenset[str]:
    """Names of the operators that the jobs need, all together."""
    return frozenset().union(*(OPERATORS[job.kind] | ({KUEUE} if job.queue else set()) for job in jobs))
