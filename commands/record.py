"""The record of a run, completed when its job is over and written beside its checkpoints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from commands.job_state import JobState

FILE = "run-record.json"
BUCKETS = ("gs://", "s3://", "file://")
"""Beginnings of the buckets that can be written from here."""


def completed(record: Mapping[str, Any], state: JobState) -> dict[str, Any]:
    """The record with how the job ended, its hours, chip-hours, and what its hosts cost in US dollars."""
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
    """Write the record into its job's folder of the bucket; where it is. Raises CalledProcessError.

    A cloud's bucket is written with the `gcloud` or `aws` that people use; neither was run so far.
    """
    target, text = f"{bucket.rstrip('/')}/{record['bucket_prefix']}/{FILE}", json.dumps(record, indent=2)
    copy = {"gs": ["gcloud", "storage", "cp"], "s3": ["aws", "s3", "cp"]}.get(target.partition("://")[0])
    if copy:
        subprocess.run([*copy, "-", target], input=text, text=True, check=True)
    else:
        path = Path(target.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return target
