"""Codes of problems: each belongs to one rule and has the form that docs and tests rely on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
CODE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+){2}")
MAKERS = ("Problem", "_problem", "problem")
"""Names of the functions that create a problem with a code."""


def codes() -> Iterator[str]:
    """Yield the codes in the source."""
    files = [*PROJECT.glob("stack_*.py"), *(PROJECT / "infra").rglob("*.py"), *(PROJECT / "workloads").rglob("*.py")]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS:
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                yield from (each for each in texts[:1] if isinstance(each, str) and "." in each and " " not in each)


def test_code_in_source_is_of_one_rule_and_well_formed() -> None:
    found = list(codes())
    assert len(found) > 140
    assert [each for each in found if not CODE.fullmatch(each)] == []
    assert sorted({each for each in found if found.count(each) > 1}) == []
