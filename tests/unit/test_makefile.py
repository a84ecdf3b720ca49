"""Makefile: variables that count only on the command line, and targets that need no set-up. Names of test lanes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = (".venv", ".venv-dev", ".venv-tensorboard", ".venv-xla", ".venv-stores", ".venv-docs", "site")
CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".import_linter_cache", ".hypothesis", "infra/__pycache__")
KEPT_FILES = ("Pulumi.local.yaml", ".trainyard/pulumi/state", "cache/trainyard/bin/kubectl", "infra/naming.py")


def make(target: str, folder: Path) -> str:
    """Return the output of a target, run without the variables of the `make` that runs the tests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    done = subprocess.run(["make", target], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_yes_and_fresh_count_only_on_the_command_line() -> None:
    show = ["make", "--silent", "--eval=show: ; @echo answers=$$YES$$FRESH", "show"]
    found = [
        subprocess.run(
            [*show, *words],
            cwd=PROJECT,
            env=os.environ | {"YES": "1", "FRESH": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for words in ((), ("YES=2", "FRESH=2"))
    ]
    assert found == ["answers=", "answers=22"]


def test_help_lists_every_target() -> None:
    targets = re.findall(r"(?m)^([a-z-]+):(?!=)", (PROJECT / "Makefile").read_text(encoding="utf-8"))
    lines = make("help", PROJECT).splitlines()
    assert [line.split()[:2] for line in lines] == [["make", target] for target in targets]
    assert all(len(line.split()) > 3 for line in lines), "each line must describe its target"


def test_clean_removes_environments_and_keeps_other_files(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    for name in (*(f"{folder}/file" for folder in (*ENVIRONMENTS, *CACHES)), *KEPT_FILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    make("clean", tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {*KEPT_FILES, "Makefile"}


def test_unknown_lane_is_rejected_before_collection_with_the_known_names() -> None:
    words = [sys.executable, "-m", "pytest", "-n0", "--lane=fast,nolane"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    problem = "--lane nolane: must be one of fast, process, pulumi, cluster, end_to_end"
    assert [line for line in done.stderr.splitlines() if line] == [f"ERROR: {problem}"]
    assert "collected" not in done.stdout
