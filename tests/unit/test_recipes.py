"""The recipes: every YAML block of every page is a job that can be, and the first one runs on this machine."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.own_images import own_images
from stack_config import contradictions, parse
from tests.unit.test_wrong_input import CLUSTER, KUBECONFIG
from trainer.config import parse as parse_flags
from workloads.command import program
from workloads.recipes import FOLDER, recipe_jobs, recipe_names, yaml_blocks

CLOUD = {**CLUSTER, "kubeconfig": str(KUBECONFIG)}
BLOCKS = [(name, place) for name in recipe_names() for place, _ in enumerate(yaml_blocks(name))]


def place_of(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """A platform that the jobs can run on: images of our own are built for this machine alone."""
    return {"kind": "local"} if own_images(job.get("image") for job in jobs) else CLOUD


def test_every_page_is_listed_in_no_other_way() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*recipe_names(), "README"}
    assert "resnet-fake" in recipe_names()


@pytest.mark.parametrize(("name", "place"), BLOCKS)
def test_every_block_is_a_job_that_can_be(name: str, place: int) -> None:
    jobs: list[dict[str, Any]] = yaml.safe_load(yaml_blocks(name)[place])
    secrets = {secret: True for job in jobs for secret in job.get("secrets", {}).values()}
    for spec in parse({"platform": place_of(jobs), "jobs": jobs}, secrets).jobs:
        if spec.recipe:
            words = program(spec)
            parse_flags(words[words.index("trainer") + 1 :])


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_names_its_job_after_itself_and_its_page_says_how_to_run_it(name: str) -> None:
    assert recipe_jobs(name)[0]["name"] == name
    assert f"`make up JOB={name}`" in (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_for_a_machine_without_accelerators(name: str) -> None:
    jobs = recipe_jobs(name)
    config = parse({"platform": place_of(jobs), "jobs": jobs}, {"wandb": True})
    assert contradictions(config) == []
    assert all(job.accelerator is None for job in config.jobs)
