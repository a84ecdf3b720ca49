"""Stacks that depend on changed files, and stacks whose settings file was deleted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commands import workflows
from commands.environment import PROJECT
from commands.workflows import PROGRAM_PATHS, affected, affected_stacks, has_platform, removed
from stack.config import load_file

STACKS = {"eks": "jobs: [elastic]", "dev": "jobs: [{script: ./train.py}, elastic-lightning]"}
"""Stack -> text of its settings file."""
PRINT_LOADED_FILES = """
import pathlib, runpy, sys
runpy.run_path("__main__.py", run_name="program")
root = pathlib.Path.cwd()
files = [pathlib.Path(each.__file__) for each in sys.modules.values() if getattr(each, "__file__", None)]
print(*(file.relative_to(root) for file in files if file.is_relative_to(root) and "site-packages" not in file.parts))
"""


@pytest.mark.parametrize(
    ("paths", "stacks"),
    [
        *((path, ["dev", "eks"]) for path in ("__main__.py", "infra/gcp/cluster.py", "trainer/loop.py")),
        *((path, ["dev", "eks"]) for path in ("setup/go/jobset/go.mod", "policy/rules.py", "settings/types.py")),
        ("stack/placement.py", ["dev", "eks"]),
        ("Pulumi.dev.yaml README.md", ["dev"]),
        ("train.py", ["dev"]),
        ("docs/recipes/elastic.md", ["eks"]),
        ("docs/recipes/elastic-lightning.md", ["dev"]),
        *((path, []) for path in ("docs/tour.md", "Pulumi.gone.yaml", "commands/rehearse/run.py")),
        ("docs/recipes/mnist-spmd.md", []),
    ],
)
def test_affected_returns_the_stacks_that_depend_on_a_changed_path(paths: str, stacks: list[str]) -> None:
    assert affected(paths.split(), STACKS) == stacks


def test_affected_returns_the_stacks_that_name_a_changed_requirements_file() -> None:
    stacks = {"a": "{requirements: mine/r.txt}", "b": "requirements: './mine/r.txt'", "c": "requirements: mine/r.txt.x"}
    assert affected(["mine/r.txt"], stacks) == ["a", "b"]


@pytest.mark.parametrize("file", sorted(PROJECT.glob("Pulumi.*.yaml")), ids=lambda file: file.name)
def test_has_platform_agrees_with_the_settings(file: Path) -> None:
    text, kind = file.read_text(encoding="utf-8"), load_file(file).platform.kind
    assert [each for each in ("local", "kubeconfig", "gke", "eks") if has_platform(each, text)] == [kind]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config: {trainyard:platform: {kind: local}}", True),
        ("config:\n  trainyard:platform:\n    nodes: 2\n    'kind': \"local\" # here\n", True),
        ("config:\n  # kind: local\n  trainyard:platform: {kind: gke}\n", False),
        ("config: {trainyard:platform: {kind: kubeconfig, context: kind-local}}", False),
    ],
)
def test_has_platform_reads_flow_style_quotes_and_comments(text: str, expected: bool) -> None:
    assert has_platform("local", text) is expected


def test_affected_stacks_leaves_out_local_stacks_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "PROJECT", tmp_path)
    monkeypatch.setattr(workflows, "changed_paths", lambda _range: ["__main__.py", "Pulumi.gone.yaml"])
    for name, kind in (("dev", "gke"), ("laptop", "local"), ("team", "kubeconfig")):
        (tmp_path / f"Pulumi.{name}.yaml").write_text(
            f"config: {{trainyard:platform: {{kind: {kind}}}}}", encoding="utf-8"
        )
    assert affected_stacks("main", with_removed=True, no_local=False) == ["dev", "laptop", "gone"]
    assert affected_stacks("main", with_removed=True, no_local=True) == ["dev", "gone"]


def test_program_paths_cover_every_file_that_python_loads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_LOADED_FILES], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "stack/placement.py" in loaded
    assert [path for path in loaded if not path.startswith(PROGRAM_PATHS)] == []


def test_removed_returns_the_stack_of_a_deleted_settings_file() -> None:
    assert removed(["docs/tour.md", "Pulumi.gone.yaml", "Pulumi.dev.yaml"], STACKS) == ["gone"]
