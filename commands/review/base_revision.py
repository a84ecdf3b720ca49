"""Resources that a stack declared before a change, recorded with the earlier program if the program has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from commands.affected_stacks import changed_paths, is_named, is_program
from commands.environment import PROJECT
from commands.review.recorded import recorded_file
from commands.review.recording import Record
from stack.config import StackConfig

MODULE = "commands.review.recorded"
"""Module that prints a program's records. Programs older than this module are not compared."""


def records_before(stack: str, text: str, config: StackConfig | None, commit: str) -> tuple[list[Record], str]:
    """Return the resources that the stack's file declared at a commit, and a sentence about what stays unseen, or "".

    `config` is the file as today's program reads it; None if it cannot.
    """
    if config and not program_differs(commit, text):
        return recorded_file(text, config), ""
    try:
        return recorded_there(stack, commit), ""
    except RuntimeError as error:
        why = f"the program before the change cannot be asked ({error})"
    if config:
        return recorded_file(text, config), f"Only the settings are compared: {why}."
    return [], f"Nothing is compared: {why}."


def program_differs(commit: str, text: str) -> bool:
    """Return True if the program, or a file that a stack's settings name, has changed since a commit."""
    return any(is_program(path) or is_named(path, text) for path in changed_paths(commit))


def recorded_there(stack: str, commit: str) -> list[Record]:
    """Return the records of a stack from the commit's own program. Raises RuntimeError if it cannot be run."""
    with tempfile.TemporaryDirectory(prefix="trainyard-before-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=PROJECT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", f"--directory={folder}"], input=archive, check=True)
        done = subprocess.run(
            [sys.executable, "-m", MODULE, stack],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    said = (done.stderr.strip().splitlines() or ["it prints no records"])[-1]
    if done.returncode != 0 or not done.stdout.strip():
        raise RuntimeError(said)
    return list(_records(json.loads(done.stdout.replace(folder, str(PROJECT)))))


def _records(found: Iterable[dict[str, Any]]) -> Iterable[Record]:
    for each in found:
        depends = {name: tuple(urns) for name, urns in each["depends"].items()}
        options = {name: tuple(each.get(name, ())) for name in ("ignore_changes", "replace_on_changes")}
        yield Record(**{**each, **options, "depends": depends})
