"""Run record: completed when the job is over, and written next to its checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from commands.monitor.job_state import JobState

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
