"""Validation of folders: recipes that write where pods cannot. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from settings.problem import Problem
from workloads.pod_folders import BUCKET_PATH, OF_A_HOST, is_below
from workloads.spec import JobSpec
from workloads.trainer_flags import value_of


def folder_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each flag with a folder that the trainer cannot write or that hosts do not share."""
    if spec.recipe is None:
        return
    bucket = str(value_of(spec.recipe, spec.flags, "bucket") or "")
    if bucket.startswith("file:///"):
        folder = posixpath.normpath(bucket.removeprefix("file://"))
        own = "remove it, for a job has the platform's bucket by itself"
        if is_below(folder, *OF_A_HOST):
            if spec.hosts > 1:
                message = f"each of the {spec.hosts} hosts has for itself, and they write one checkpoint"
                yield Problem(
                    "job.bucket.of_each_host", ("flags", "bucket"), f"is a folder that {message}; {own}", bucket
                )
        elif not is_below(folder, BUCKET_PATH):
            yield Problem("job.bucket.read_only", ("flags", "bucket"), f"is read-only in pods; {own}", bucket)
    reads = value_of(spec.recipe, spec.flags, "fake_data") is False
    cache = value_of(spec.recipe, spec.flags, "cache_dir") if reads else None
    if cache and not is_below(posixpath.normpath(str(cache)), *OF_A_HOST, BUCKET_PATH):
        message = f"is not a folder that pods can write to; write one in {' or '.join(OF_A_HOST)}, or remove it"
        yield Problem("job.cache_dir.read_only", ("flags", written(spec, "cache_dir")), message, cache)


def written(spec: JobSpec, name: str) -> str:
    """Return a flag's name as written in the job's settings, with '-' or '_'."""
    return next((key for key in spec.flags if key.replace("-", "_") == name), name)
