"""Examples: every YAML block of every page is a valid job, and the first one needs no accelerator."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from infra.hardware.tpus import is_tpu
from stack.config import StackConfig
from stack.validation import configuration_conflicts
from tests.unit.refused import CLUSTER
from trainer.config import parse as parse_flags
from workloads.command import program
from workloads.examples import FOLDER, example_jobs, example_names, yaml_blocks
from workloads.spec import JobSpec

BLOCKS = [(name, place) for name in example_names() for place, _ in enumerate(yaml_blocks(name))]


def platform_of(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a platform with the jobs' accelerators. With accelerators, its bucket is an object store."""
    first = jobs[0]
    if "accelerator" not in first:
        return {"kind": "local"}
    if not is_tpu(first["accelerator"]):
        return {**CLUSTER, "bucket": {"kind": "url", "url": "s3://team"}}
    pool = {key: first[key] for key in ("accelerator", "topology") if key in first}
    return {"kind": "gke", "project": "some-project", "pools": [{"name": "tpus", "check_zones": False, **pool}]}


def checked(jobs: list[dict[str, Any]]) -> tuple[JobSpec, ...]:
    """Return the validated jobs, on this machine or on a platform with accelerators."""
    config = StackConfig.model_validate_json(json.dumps({"platform": platform_of(jobs), "jobs": jobs}))
    assert configuration_conflicts(config.cloud, config.jobs) == []
    return config.jobs


def test_examples_index_lists_every_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*example_names(), "README"}
    listed = re.findall(r"^\| \[([a-z0-9-]+)\]\(\1\.md\)", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == example_names()


@pytest.mark.parametrize(("name", "place"), BLOCKS)
def test_example_block_is_valid_job(name: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every pod has this variable.
    monkeypatch.setenv("TRAINYARD_BUCKET", "file:///bucket")
    for spec in checked(yaml.safe_load(yaml_blocks(name)[place])):
        if spec.recipe:
            words = program(spec)
            parse_flags(words[words.index("trainer") + 1 :])


@pytest.mark.parametrize("name", example_names())
def test_example_page_has_name_and_command_of_its_job(name: str) -> None:
    assert example_jobs(name)[0]["name"] == name
    assert f"`make up JOB={name}`" in (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", example_names())
def test_example_first_block_needs_no_accelerator(name: str) -> None:
    assert all(job.accelerator is None for job in checked(example_jobs(name)))
