"""Messages that advise a make command include the stack."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.make_command import make_command

PROJECT = Path(__file__).resolve().parents[2]
STACK_COMMAND = re.compile(r"`make (up|down|logs|status|exec|tensorboard|shell)`")
"""Commands of a stack that do not name one."""


@pytest.mark.parametrize(
    ("stack", "variables", "expected"),
    [
        (None, {}, "`make up`"),
        ("local", {"JOB": ""}, "`make up`"),
        ("other", {}, "`make up STACK=other`"),
        ("other", {"JOB": "elastic"}, "`make up STACK=other JOB=elastic`"),
        ("other", {"STACK": "third"}, "`make up STACK=third`"),
    ],
)
def test_make_command_includes_stack_unless_default(
    stack: str | None, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STACK", raising=False)
    if stack is not None:
        monkeypatch.setenv("STACK", stack)
    assert make_command("up", **variables) == expected


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings."""
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def test_messages_use_make_command_for_stack_targets() -> None:
    files = [*PROJECT.glob("commands/**/*.py"), *PROJECT.glob("stack_*.py"), *PROJECT.glob("infra/operators/*.py")]
    found = {
        f"{file.relative_to(PROJECT)}: {text}"
        for file in files
        for text in messages(ast.parse(file.read_text(encoding="utf-8")))
        if STACK_COMMAND.search(text)
    }
    assert found == set()
