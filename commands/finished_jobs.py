"""Jobs that have ended: their run records next to their checkpoints, and advice to rerun them or train further."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
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


FILE = "run-record.json"
HERE = "file"
"""Scheme of a bucket that is a folder. Both the cluster and the folder are then on this machine."""
COPY = {"gs": ("gcloud", "storage", "cp"), "s3": ("aws", "s3", "cp")}
"""Command that writes to each cloud's buckets."""


class WriteFailed(RuntimeError):
    """A record could not be written. The message gives the target and the reason."""


def completed(record: Mapping[str, Any], state: JobState) -> dict[str, Any]:
    """Return the record with the job's result, hours, chip-hours and hosts' cost in US dollars."""
    hours = None
    if state.started and state.finished:
        hours = (datetime.fromisoformat(state.finished) - datetime.fromisoformat(state.started)).total_seconds() / 3600
    price = record["usd_per_hour"]
    return {
        **record,
        "state": state.state,
        "started": state.started,
        "finished": state.finished,
        "hours": None if hours is None else round(hours, 4),
        "chip_hours": None if hours is None else round(hours * record["chips"], 4),
        "usd": None if hours is None or price is None else round(hours * price, 4),
    }


def write(bucket: str, record: Mapping[str, Any]) -> str:
    """Write the record into its job's folder of the bucket. Return its URL. Raises WriteFailed.

    The user's `gcloud` or `aws` writes to a cloud's bucket. Neither command has been run yet.
    """
    target, text = f"{bucket.rstrip('/')}/{record['bucket_prefix']}/{FILE}", json.dumps(record, indent=2)
    scheme, _, path = target.partition("://")
    try:
        if scheme == HERE:
            _write_file(Path(path), text)
        else:
            subprocess.run([*COPY[scheme], "-", target], input=text, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WriteFailed(f"{target} cannot be written: {error}") from error
    return target


def _write_file(path: Path, text: str) -> None:
    """Write a file that belongs to the bucket's owner, like its folder. The job may not have written there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    owner = path.parent.parent.stat()
    for made in (path.parent, path):
        os.chown(made, owner.st_uid, owner.st_gid)
