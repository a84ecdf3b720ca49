"""Descriptions of jobs that ended before `make up` began, with advice to rerun them or train further."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from commands.monitor.job_state import JobState
from commands.monitor.pod_state import PodState
from commands.monitor.screen import summary
from infra.make_command import make_command
from workloads.kinds import KINDS


def finished_lines(
    job: JobState, pods: Sequence[PodState], record: Mapping[str, Any], bucket: str, *, is_script: bool
) -> list[str]:
    """Return a job's result, the location of its output, and the next steps; `record` is its run record."""
    first, *more = summary(job, [pod for pod in pods if pod.owner == job.uid], None, {})
    folder, checkpoints = f"{bucket}/{record['bucket_prefix']}", f"{bucket}/{record['checkpoints']}"
    up = make_command("up", JOB=os.environ.get("JOB", ""))
    delete = f"`kubectl delete {_resource(job)} {job.name}` in {make_command('shell')}"
    again = f"to run it again with the same settings: {delete}, then {up}"
    steps = [f"to run it again: change its script or settings, then {up}", again]
    if not is_script:
        steps = _trainer_steps(job, record["bucket_prefix"], up, again)
    return [
        f"{first}; it ended at {job.finished}, before this command",
        *more,
        "  its settings have not changed since, so it was not started again",
        f"  log: {make_command('logs')}; run record and metrics: {folder}; checkpoints: {checkpoints}",
        *(f"  {step}" for step in steps),
    ]


def _trainer_steps(job: JobState, folder: str, up: str, again: str) -> list[str]:
    """Return the next steps for a trainer's job, which resumes from the last checkpoint in its folder."""
    from_start = f"to train from the beginning: set `job: {folder}-2` in its `flags`, then {up}"
    if job.state == "complete":
        return [f"to train further from its last checkpoint: raise `epochs` in its `flags`, then {up}", from_start]
    change = f"to go on from its last checkpoint: change the settings that made it fail, then {up}"
    return [change, again, from_start]


def _resource(job: JobState) -> str:
    """Return kubectl's name for the job's object."""
    kind = KINDS.get(job.kind)
    return kind.resource.plural if kind and kind.resource else "job"
