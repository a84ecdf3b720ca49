"""Folders that a recipe could not write in its pods are refused; those that pods have are taken."""

from __future__ import annotations

from typing import Any

import pytest

from stack.config import parse
from tests.problems import refused
from tests.unit.refused import cloud, job

ELASTIC = {"min_hosts": 1, "max_hosts": 2}


def cached(folder: str) -> dict[str, Any]:
    """A configuration with a job that keeps decoded images."""
    data = "/opt/trainyard/tiny-imagenet"
    return job(recipe="imagenet", flags={"fake_data": False, "data_dir": data, "cache_dir": folder})


def bucket(url: str, **changes: Any) -> dict[str, Any]:
    """A configuration with a job that has a bucket of its own."""
    return job(flags={"bucket": url}, **changes)


FOLDER_PROBLEMS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "a bucket at the top": (bucket("file:///checkpoints"), ("job.bucket.read_only", "jobs.0.flags.bucket")),
    "a bucket beside the bucket": (bucket("file:///bucket/../runs"), ("job.bucket.read_only", "jobs.0.flags.bucket")),
    "a bucket whose name begins so": (bucket("file:///bucket2"), ("job.bucket.read_only", "jobs.0.flags.bucket")),
    "a bucket of a platform without a mount": (
        cloud(flags={"bucket": "file:///home/me"}),
        ("job.bucket.read_only", "jobs.0.flags.bucket"),
    ),
    "a cache at the top": (cached("/cache"), ("job.cache_dir.read_only", "jobs.0.flags.cache_dir")),
    "a cache in the image": (cached("/opt/trainyard/cache"), ("job.cache_dir.read_only", "jobs.0.flags.cache_dir")),
    "a cache next to the program": (cached("cache"), ("job.cache_dir.read_only", "jobs.0.flags.cache_dir")),
    "a cache in a bucket": (cached("s3://team/cache"), ("job.cache_dir.read_only", "jobs.0.flags.cache_dir")),
    "a bucket of each host": (bucket("file:///tmp/ck", hosts=2), ("job.bucket.of_each_host", "jobs.0.flags.bucket")),
    "a bucket of each elastic host": (
        bucket("file:///dev/shm/ck", elastic=ELASTIC),
        ("job.bucket.of_each_host", "jobs.0.flags.bucket"),
    ),
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("name", FOLDER_PROBLEMS)
def test_folder_not_writable_in_pods_has_code_and_path(name: str) -> None:
    values, problem = FOLDER_PROBLEMS[name]
    assert refused(values) == [problem]


@pytest.mark.parametrize(
    "values",
    [
        bucket("file:///bucket"),
        bucket("file:///bucket/mine", hosts=2),
        bucket("file:///tmp/ck"),
        bucket(""),
        bucket("s3://team/runs", hosts=2),
        cached("/dev/shm"),
        cached("/tmp/images"),
        cached(""),
        job(recipe="imagenet", flags={"cache_dir": ""}),
    ],
    ids=str,
)
def test_folder_writable_in_pods_is_accepted(values: dict[str, Any]) -> None:
    assert parse(values).jobs
