"""Which operators each kind of job needs in its cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workloads.spec import JobKind, JobSpec

OPERATORS: Mapping[JobKind, frozenset[str]] = {"indexed-job": frozenset()}
"""Names of operators, as in infra/operator_releases.py, by the kind of job."""


def operators_of(jobs: Iterable[JobSpec]) -> frozenset[str]:
    """Names of the operators that the jobs need, all together."""
    return frozenset().union(*(OPERATORS[job.kind] for job in jobs))
