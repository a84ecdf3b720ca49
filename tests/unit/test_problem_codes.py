"""Codes of problems: each belongs to one rule and has the form that docs and tests rely on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.problem import dotted, path_of

PROJECT = Path(__file__).parents[2]
CODE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+){2}")
MAKERS = ("Problem", "_problem", "problem")
"""Names of the functions that create a problem with a code."""
PART_MAKERS = ("Invalid", "HardwareError", "with_code", "match_pattern")
"""Names of the functions that get the last part of a code."""


def first_texts(*makers: str) -> Iterator[str]:
    """Yield the first text that each call of these functions in the source has."""
    for file in (
        file
        for folder in ("infra", "settings", "stack", "workloads", "policy")
        for file in PROJECT.glob(f"{folder}/**/*.py")
    ):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in makers:
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                yield from (each for each in texts[:1] if isinstance(each, str))


def test_code_in_source_is_of_one_rule_and_well_formed() -> None:
    found = [each for each in first_texts(*MAKERS) if "." in each and " " not in each]
    assert len(found) > 140
    assert [each for each in found if not CODE.fullmatch(each)] == []
    assert sorted({each for each in found if found.count(each) > 1}) == []


def test_code_of_invalid_value_is_of_one_rule_and_well_formed() -> None:
    found = list(first_texts(*PART_MAKERS))
    assert len(found) > 50
    assert [each for each in found if not re.fullmatch(r"[a-z][a-z0-9_]*", each)] == []
    assert sorted({each for each in found if found.count(each) > 1}) == []


@pytest.mark.parametrize("text", ["", "name", "pools[0].name", "a[1][2]", "metadata.labels.example.com/team"])
def test_dotted_path_of_text_is_the_text(text: str) -> None:
    assert dotted(path_of(text)) == text
