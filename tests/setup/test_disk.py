"""Disk space that set-up needs: for all steps, after an interruption, and with a stored trainer image."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commands import doctor
from infra.local import lifecycle
from infra.local.settings import cache_folder
from infra.local.trainer_image import TRAINER_REPOSITORY
from setup.disk import GO_BUILDS, IMAGES, PYTHON_PACKAGES, DiskNeed, needed_bytes, remaining_bytes
from setup.progress import Step
from setup.steps import steps

GB = 10**9
FILE_BYTES = 5_000_000


@pytest.fixture(autouse=True)
def _empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


def needed() -> int:
    """Return the bytes that the remaining steps of the local cluster need."""
    return remaining_bytes(steps(cluster=True))


def missing_step(*needs: DiskNeed) -> Step:
    """Return a step that has never run."""
    return Step(name="a", is_done=lambda: False, do=lambda _say: None, disk=needs)


def write_file(folder: Path) -> None:
    """Write a file as an interrupted set-up leaves it."""
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"x" * FILE_BYTES)


def test_empty_home_needs_the_sum_of_all_folders() -> None:
    assert needed() == 40 * GB


@pytest.mark.parametrize("folder", ["uv/archive-v0", "trainyard/images/buildah", "trainyard/go-build/modules"])
def test_files_of_an_interrupted_set_up_reduce_the_need(folder: str, tmp_path: Path) -> None:
    write_file(tmp_path / folder)
    assert FILE_BYTES <= 40 * GB - needed() < 2 * FILE_BYTES


def test_folder_of_two_steps_counts_once_and_does_not_reduce_the_need_of_other_folders() -> None:
    assert needed_bytes([missing_step(GO_BUILDS), missing_step(GO_BUILDS)]) == GO_BUILDS.peak_bytes
    write_file(cache_folder() / "go-build")
    small = replace(GO_BUILDS, peak_bytes=FILE_BYTES // 5)
    assert needed_bytes([missing_step(small, PYTHON_PACKAGES)]) == PYTHON_PACKAGES.peak_bytes


@pytest.mark.parametrize(
    ("reference", "expected"),
    [(f"{TRAINER_REPOSITORY}:of-earlier-sources", GO_BUILDS.peak_bytes), ("trainyard.local/pause:1", 40 * GB)],
)
def test_only_a_stored_trainer_image_reduces_the_need_to_go_builds(reference: str, expected: int) -> None:
    file = cache_folder() / "images" / "references.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps([reference]), encoding="utf-8")
    assert expected - IMAGES.peak_bytes / 1000 < needed() <= expected


def test_doctor_reports_the_need_and_the_steps_of_set_up(tmp_path: Path) -> None:
    write_file(tmp_path / "uv")
    found = {each.name: each for each in doctor.findings(None)}
    assert found["disk"].found.endswith(f" GB free in {cache_folder()}, 40 GB needed")
    is_rejected = "40 GB are needed" in found["local cluster"].remedy
    assert is_rejected == (shutil.disk_usage(tmp_path).free < 40 * GB - FILE_BYTES)
    assert (found["disk"].state == "optional") == is_rejected
    assert bool(found["disk"].remedy) == is_rejected
    assert found["set-up"].found.endswith(f" of {len(steps(cluster=True))} steps done")


@pytest.mark.parametrize(("needed", "problem"), [(10**18, "1000000000 GB are needed"), (0, "")])
def test_disk_is_ok_only_if_enough_is_free(needed: int, problem: str) -> None:
    problems = lifecycle.disk_problems(needed)
    assert bool(problems) == bool(problem)
    assert problem in "".join(problems)


def test_read_only_cache_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self")  # Not even root can write there.
    (problem,) = lifecycle.disk_problems(0)
    assert problem.startswith("disk: /proc/self is not writable; ")
    assert "XDG_CACHE_HOME" in problem
    found = {each.name: each for each in doctor.findings(None)}
    assert (found["disk"].state, found["disk"].remedy) == ("optional", problem)
    assert problem in found["local cluster"].remedy
