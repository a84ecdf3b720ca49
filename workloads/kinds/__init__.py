"""The renderers: each wraps the one pod template in the resources of its kind of job; and what each kind needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pulumi

from workloads.kinds import indexed_job, jobset, mpi_job, mx_job, pytorch_job, train_job
from workloads.pod import Placement
from workloads.spec import JobKind, JobSpec

Renderer = Callable[[str, JobSpec, Placement, pulumi.ResourceOptions], pulumi.Output[str]]
"""Creates the resources of a job, their logical names beginning with the first argument; returns the job's name."""

RENDERERS: Mapping[JobKind, Renderer] = MappingProxyType(
    {
        "indexed-job": indexed_job.render,
        "pytorch-job": pytorch_job.render,
        "mpi-job": mpi_job.render,
        "mx-job": mx_job.render,
        "jobset": jobset.render,
        "train-job": train_job.render,
    }
)

OPERATORS: Mapping[JobKind, frozenset[str]] = MappingProxyType(
    {
        "indexed-job": frozenset(),
        "pytorch-job": frozenset({"training-operator"}),
        "mpi-job": frozenset({"mpi-operator"}),
        "mx-job": frozenset({"training-operator"}),
        "jobset": frozenset({"jobset"}),
        "train-job": frozenset({"trainer", "jobset"}),
    }
)
"""The operators that each kind needs in its cluster, by the names of `infra.operators`."""

QUEUE_OPERATORS = frozenset({"kueue"})
"""The operators that a job with a `queue` needs besides."""


def operators_of(spec: JobSpec) -> frozenset[str]:
    """The operators that a job needs."""
    return OPERATORS[spec.kind] | (QUEUE_OPERATORS if spec.queue else frozenset())
