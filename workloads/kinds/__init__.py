"""The renderers: each wraps the one pod template in the resources of its kind of job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pulumi

from workloads.kinds import indexed_job, jobset, mpi_job, mx_job, pytorch_job, train_job
from workloads.needs import OPERATORS
from workloads.pod import Placement
from workloads.spec import JobKind, JobSpec

__all__ = ["OPERATORS", "RENDERERS", "Renderer"]

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
