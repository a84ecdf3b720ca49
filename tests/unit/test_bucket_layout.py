"""Lifecycle rules of a bucket, and run records, name the folders that the trainer writes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands.bucket import TOKENIZER_FOLDER
from infra.aws import storage as aws
from infra.aws.config import EksBucketConfig
from infra.gcp import storage as gcp
from infra.gcp.config import GkeBucketConfig
from stack.config import StackConfig, parse
from stack.run_record import run_records
from stack.validation import SHARED_FOLDERS
from tests.trainer.image_sets import ONLY_RANK
from tests.unit.stack_settings import JOB, PLATFORM
from trainer.config import LanguageConfig
from trainer.language.tokenizer import byte_tokenizer_json, load_tokenizer
from trainer.storage import Folder, checkpoints_folder, profiles_folder

BUCKET = "file:///bucket"


def stack(**job: object) -> StackConfig:
    """Return a stack with one job."""
    return parse({"platform": PLATFORM, "jobs": [{**JOB, "name": "a", **job}]})


def eks_prefixes() -> list[str]:
    """Return the prefixes of the objects that S3 deletes, in a bucket for the folder `runs`."""
    rules: list[Any] = aws.lifecycle(EksBucketConfig(name="bucket", prefix="runs", profile_days=3, checkpoint_days=5))
    return [rule.filter.prefix for rule in rules if rule.expiration]


def gke_prefixes() -> list[str]:
    """Return the prefixes of the objects that Cloud Storage deletes."""
    rules: list[Any] = gcp.lifecycle(GkeBucketConfig(profile_days=3, checkpoint_days=5))
    return [prefix for rule in rules for prefix in rule.condition.matches_prefixes or []]


def test_bucket_lifecycle_prefixes_match_trainer_folders() -> None:
    prefixes = eks_prefixes()
    bucket = Folder(f"{BUCKET}/runs")
    folders = (profiles_folder(bucket, "any"), checkpoints_folder(bucket, "any"))
    for prefix, folder in zip(prefixes, folders, strict=True):
        assert folder.url == f"{BUCKET}/{prefix}any", "a shorter prefix would also delete other files"


def test_no_lifecycle_rule_deletes_the_tokenizer_of_a_job(tmp_path: Path) -> None:
    given = tmp_path / "tokenizer.json"
    given.write_text(byte_tokenizer_json())
    bucket = tmp_path / "bucket" / "runs"
    load_tokenizer(LanguageConfig(tokenizer=str(given), bucket=bucket.as_uri(), job="any"), ONLY_RANK, [])
    (written,) = bucket.rglob("*.json")
    assert written.parent == bucket / "any" / TOKENIZER_FOLDER
    for root, prefixes in ((bucket.parent, eks_prefixes()), (bucket, gke_prefixes())):
        assert len(prefixes) == 2
        assert not str(written.relative_to(root)).startswith(tuple(prefixes))


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
