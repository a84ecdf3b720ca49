"""Examples with other projects' trainers: the stack file's diff on each page, and the command of the job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from stack.config import parse
from workloads.command import program
from workloads.spec import EXAMPLES_FOLDER, example_jobs

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLES = ["deepspeed", "hf-trainer", "trl-sft"]
STACK = "Pulumi.local.yaml"


def difference(name: str) -> list[str]:
    """Return the lines of the `diff` block of an example's page."""
    page = (EXAMPLES_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(block).splitlines()


@pytest.mark.parametrize("name", EXAMPLES)
def test_difference_on_page_turns_the_local_stack_into_the_example(name: str) -> None:
    lines = difference(name)
    before, after = ("\n".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    stack = (PROJECT / STACK).read_text(encoding="utf-8")
    assert stack.count(before) == 1
    content = yaml.safe_load(stack.replace(before, after))["config"]
    assert content["trainyard:jobs"] == example_jobs(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_framework_example_runs_its_script_under_the_launcher_on_two_hosts(name: str) -> None:
    (job,) = parse({"platform": {"kind": "local"}, "jobs": example_jobs(name)}).jobs
    script = str(job.script)
    assert (PROJECT / script).is_file()
    words = ("python", "-m", "trainer.launch", f"/opt/script/{Path(script).name}", *job.args)
    assert program(job) == words
    assert job.hosts == 2
    assert job.image_ref.builtin == "frameworks"
    assert f"--output_dir=/bucket/checkpoints/{name}" in job.args
