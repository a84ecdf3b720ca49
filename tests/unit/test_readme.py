"""Promises of README.md: its table of stacks, its smallest machine, its shortest job and its cache folder."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local.settings import cache_folder
from infra.project import PROJECT_VARIABLE
from stack import validation
from stack.config import load_file, parse
from tests.unit.test_docs import PROJECT, SMALLEST_MACHINE

README = (PROJECT / "README.md").read_text(encoding="utf-8")
Job = tuple[str, str | None, int, str | None, int | None]
"""Kind, recipe, hosts, accelerator and accelerators per host of a job."""
STACKS: dict[str, tuple[str, list[Job]]] = {
    "local": (
        "a convolutional network on 10,000 real handwritten digits, two hosts, DDP over gloo",
        [("indexed-job", "digits", 2, None, None)],
    ),
    "dev": ("two hosts with two T4 each", [("indexed-job", "imagenet", 2, "nvidia-tesla-t4", 2)]),
    "gke-v100": ("two hosts with two V100 each", [("indexed-job", "imagenet", 2, "nvidia-tesla-v100", 2)]),
    "gke-h200": (
        "a language model of 7 billion parameters on two hosts with eight H200 each, spot",
        [("indexed-job", "language", 2, "nvidia-h200-141gb", 8)],
    ),
    "eks-p5": (
        "a language model of 7 billion parameters on two hosts with eight H100 each",
        [("indexed-job", "language", 2, "nvidia-h100-80gb", 8)],
    ),
    "gke-tpu": ("a TPU v4 slice of 2x2x4 chips, spot", [("indexed-job", "digits", 4, "v4-32", None)]),
    "eks": (
        "a PyTorchJob, an MPIJob and an MXJob under the Kubeflow operators",
        [
            ("pytorch-job", "digits", 2, "nvidia-tesla-t4", 4),
            ("mpi-job", None, 2, None, None),
            ("mx-job", None, 2, None, None),
        ],
    ),
}
"""Name of each stack -> its text in README.md, and its jobs."""


@pytest.fixture(autouse=True)
def smallest_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set this machine's CPUs and memory to the smallest that README.md allows."""
    monkeypatch.setattr(validation, "this_machine", lambda: SMALLEST_MACHINE)


@pytest.mark.parametrize("name", STACKS)
def test_stack_file_has_the_jobs_of_readme(name: str) -> None:
    text, jobs = STACKS[name]
    assert re.search(rf"(?m)^\| `Pulumi\.{name}\.yaml` \| .* \| {re.escape(text)} \|$", README)
    config = load_file(PROJECT / f"Pulumi.{name}.yaml")
    assert [
        (job.kind, job.recipe, job.hosts, job.accelerator, job.accelerators_per_host) for job in config.jobs
    ] == jobs
    if name == "gke-tpu":
        (slice_,) = [job.tpu for job in config.jobs]
        assert slice_
        assert slice_.topology_label == "2x2x4"
        assert config.platform.kind == "gke"
        assert [pool.capacity for pool in config.platform.pools] == [("spot",)]


def test_every_stack_file_is_in_readme() -> None:
    words = ["git", "ls-files", "--", "Pulumi.*.yaml"]
    files = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(re.findall(r"(?m)^\| `(Pulumi\.[\w-]+\.yaml)` \|", README)) == sorted(files)
    assert sorted(files) == sorted(f"Pulumi.{name}.yaml" for name in STACKS)


@pytest.mark.parametrize("name", STACKS)
def test_stack_file_has_no_passphrase_salt(name: str) -> None:
    # A salt fits the state of one checkout only. A killed `pulumi` can leave a salt in the file.
    assert "encryptionsalt" not in yaml.safe_load((PROJECT / f"Pulumi.{name}.yaml").read_text(encoding="utf-8"))


def test_default_stack_is_valid_on_smallest_machine() -> None:
    assert "On a Linux machine with two cores, 8 GiB of memory" in README
    assert load_file(PROJECT / "Pulumi.local.yaml").cloud.nodes_here == 2


@pytest.mark.parametrize("program", [{"recipe": "digits"}, {"script": "./train.py"}], ids=["recipe", "script"])
def test_job_with_only_name_and_program_is_valid(
    program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print()\n", encoding="utf-8")
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    (job,) = parse({"platform": {"kind": "local"}, "jobs": [{"name": "mine", **program}]}).jobs
    assert (job.name, job.hosts) == ("mine", 1)


def test_cache_folder_is_below_xdg_cache_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/trainyard")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/trainyard")
