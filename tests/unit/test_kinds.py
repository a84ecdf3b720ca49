"""Kind objects: one per job kind, and no other code that depends on a kind's name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from infra.operators.releases import RELEASES
from workloads.kinds import DEFAULT, KINDS
from workloads.spec import JobKind, JobSpec

PROJECT = Path(__file__).resolve().parents[2]


def test_kind_registry_has_every_job_kind() -> None:
    assert tuple(KINDS) == get_args(JobKind)
    assert JobSpec.model_fields["kind"].default == DEFAULT.name


def test_kind_registry_refers_to_existing_operators_and_keys() -> None:
    for kind in KINDS.values():
        assert kind.operators <= RELEASES.keys()
        assert kind.pod_types
        assert bool(kind.resource) == bool(kind.operators)
        assert set(kind.own_keys) <= JobSpec.model_fields.keys()


def lines_with_names(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare a value with a kind's name, or use it as a key of a table."""
    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            values = list(node.keys)
        parts = [part for value in values if value for part in ast.walk(value)]
        yield from (part.lineno for part in parts if isinstance(part, ast.Constant) and part.value in KINDS)


def test_source_outside_kinds_folder_compares_no_kind_name() -> None:
    words = ["git", "ls-files", "--", "*.py", ":!tests", ":!workloads/kinds"]
    files = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    found = {name: list(lines_with_names(ast.parse((PROJECT / name).read_text(encoding="utf-8")))) for name in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_kinds_import_does_not_load_pulumi() -> None:
    code = "import workloads.spec, sys; print([name for name in sys.modules if name.startswith('pulumi')])"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout == "[]\n"
