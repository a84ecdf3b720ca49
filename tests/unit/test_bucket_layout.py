"""Lifecycle rules of a bucket and run records have the folders that the trainer writes to."""

from __future__ import annotations

import pytest

from infra.aws.config import EksBucketConfig
from infra.aws.storage import lifecycle
from stack.config import StackConfig, parse
from stack.run_record import run_records
from stack.validation import SHARED_FOLDERS
from tests.unit.stack_settings import JOB, PLATFORM
from trainer.storage import Folder, checkpoints_folder, profiles_folder

BUCKET = "file:///bucket"


def stack(**job: object) -> StackConfig:
    """Return a stack with one job."""
    return parse({"platform": PLATFORM, "jobs": [{**JOB, "name": "a", **job}]})


def test_bucket_lifecycle_prefixes_match_trainer_folders() -> None:
    rules = lifecycle(EksBucketConfig(name="bucket", prefix="runs", profile_days=3, checkpoint_days=5))
    prefixes = [rule.filter.prefix for rule in rules if rule.expiration]  # type: ignore[union-attr]  # no Outputs
    bucket = Folder(f"{BUCKET}/runs")
    folders = (profiles_folder(bucket, "any"), checkpoints_folder(bucket, "any"))
    for prefix, folder in zip(prefixes, folders, strict=True):
        assert folder.url == f"{BUCKET}/{prefix}any", "a shorter prefix would also delete other files"


@pytest.mark.parametrize(("job", "folder"), [({}, "a"), ({"flags": {"job": "b"}}, "b")])
def test_run_record_has_checkpoint_and_profile_folders(job: dict[str, object], folder: str) -> None:
    config = stack(**job)
    record = run_records(config)[config.jobs[0].name]
    assert record["bucket_prefix"] == folder
    assert f"{BUCKET}/{record['checkpoints']}" == checkpoints_folder(Folder(BUCKET), folder).url
    assert f"{BUCKET}/{record['profiles']}" == profiles_folder(Folder(BUCKET), folder).url


def test_shared_folders_are_parents_of_job_folders() -> None:
    folders = [folder(Folder(BUCKET), "job").url for folder in (checkpoints_folder, profiles_folder)]
    assert folders == [f"{BUCKET}/{name}/job" for name in SHARED_FOLDERS]
