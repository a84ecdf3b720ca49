"""The stacks that the changes since a commit touch, as JSON: theirs by name, or all when the program itself changed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PROGRAM = (
    "infra/",
    "workloads/",
    "trainer/",
    "policy/",
    "__main__.py",
    "stack_config.py",
    "run_record.py",
    "Pulumi.yaml",
    "requirements",
)
"""Beginnings of the paths that every stack depends on."""
_STACK = re.compile(r"Pulumi\.([\w-]+)\.yaml")


def touched(changed: Iterable[str], stacks: Iterable[str]) -> list[str]:
    """Of the stacks that there are, those that depend on a changed path."""
    paths, known = list(changed), sorted(stacks)
    if any(path.startswith(PROGRAM) for path in paths):
        return known
    named = {found[1] for path in paths if (found := _STACK.fullmatch(path))}
    return [stack for stack in known if stack in named]


def main(base: str) -> int:
    """Print the stacks. Raises CalledProcessError when there is no such commit."""
    changed = subprocess.run(
        ["git", "diff", "--name-only", f"{base}...HEAD"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split()
    stacks = [found[1] for path in PROJECT.glob("Pulumi.*.yaml") if (found := _STACK.fullmatch(path.name))]
    print(json.dumps(touched(changed, stacks)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
