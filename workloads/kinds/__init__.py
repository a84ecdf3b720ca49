"""The renderers: each wraps the one pod template in the resources of its kind of job."""

from __future__ import annotations

from collections.abc import Callable

import pulumi

from workloads.kinds import indexed_job
from workloads.pod import Placement
from workloads.spec import JobKind, JobSpec

Renderer = Callable[[str, JobSpec, Placement, pulumi.ResourceOptions], pulumi.Output[str]]
"""Creates the resources of a job, their logical names beginning with the first argument; returns the job's name."""

RENDERERS: dict[JobKind, Renderer] = {"indexed-job": indexed_job.render}
