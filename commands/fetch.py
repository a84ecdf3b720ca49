"""Copy a job's results out of the bucket: its checkpoints, metrics and run record."""

from __future__ import annotations

import json
import os
from pathlib import Path

from commands.bucket import Bucket, BucketError
from commands.environment import PROJECT
from commands.exec import job_named
from commands.interrupts import set_closing
from commands.monitor.cluster import StackOutputs, outputs_with
from infra.make_command import DEFAULT_STACK, make_command
from stack.config import load_file

OUTPUTS = ("kubeconfig_path", "namespace", "jobs", "run_records", "bucket_url")


def fetch(job: str, to: Path | None, *, should_copy_all: bool, as_json: bool) -> int:
    """Copy the newest checkpoint or all, the metrics and the run record into a folder. Print the paths of copies."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    found = outputs_with(stack, *OUTPUTS)
    set_closing("the folder may have incomplete copies")
    name = job_named(StackOutputs.of(stack, found), job, "fetch")
    bucket = Bucket.of(found, is_here=load_file(PROJECT / f"Pulumi.{stack}.yaml").cloud.nodes_here > 0)
    folder = to or Path(name)
    try:
        copied = copy_results(bucket, found["run_records"][name], folder, should_copy_all=should_copy_all)
    except OSError as error:
        raise BucketError(f"{folder} cannot be written ({error.strerror}); name another folder with `--to`") from error
    if not copied:
        logs = make_command("logs", JOB=name)
        raise BucketError(f"job {name} has written nothing to {bucket.location('')} yet; {logs} shows its progress")
    paths = [str(path.resolve()) for path in copied]
    print(json.dumps({"job": name, "copied": paths}, indent=2) if as_json else "\n".join(paths))
    return 0


def copy_results(bucket: Bucket, record: dict[str, str], to: Path, *, should_copy_all: bool) -> list[Path]:
    """Copy a job's results. Return the paths of the copies."""
    copied = []
    newest, names = bucket.newest_checkpoint(record["checkpoints"]), bucket.names(record["checkpoints"])
    prefix = record["bucket_prefix"]
    if not names and not bucket.names(prefix):
        return []
    if not to.exists():
        to.mkdir(parents=True)
        # Keep the folder out of git and out of the files that are sent with a job's script.
        (to / ".gitignore").write_text("*\n", encoding="utf-8")
    if names and (should_copy_all or not newest):
        # The checkpoints of a user's script have names that do not tell which is the newest.
        bucket.copy(record["checkpoints"], to / "checkpoints")
        copied.append(to / "checkpoints" / record["checkpoints"].rpartition("/")[2])
    elif newest:
        bucket.copy(f"{record['checkpoints']}/{newest}", to / "checkpoints")
        copied.append(to / "checkpoints" / newest)
    if bucket.names(prefix):
        bucket.copy(prefix, to)
        copied.append(to / prefix.rpartition("/")[2])
    return copied
