"""The stacks that the changes since a commit touch, as JSON: theirs by name, or all when the program itself changed."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
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


def touched(changed: Iterable[str], stacks: Mapping[str, str]) -> list[str]:
    """Of the stacks that there are, with the texts of their files, those that depend on a changed path."""
    paths = list(changed)
    if any(path.startswith(PROGRAM) for path in paths):
        return sorted(stacks)
    named = {found[1] for path in paths if (found := _STACK.fullmatch(path))}
    # A job's script is written with its path from the checkout; YAML is not read, as this runs before set-up.
    return sorted(name for name, text in stacks.items() if name in named or any(f"./{path}" in text for path in paths))


def removed(changed: Iterable[str], stacks: Iterable[str]) -> list[str]:
    """The stacks whose file went with the change."""
    return sorted({found[1] for path in changed if (found := _STACK.fullmatch(path))} - set(stacks))


def main(arguments: list[str]) -> int:
    """Print the stacks. Raises CalledProcessError when there is no such commit."""
    parser = argparse.ArgumentParser(prog="python -m commands.touched", description=__doc__)
    parser.add_argument("base", help="the commit that the change begins at")
    parser.add_argument("--removed", action="store_true", help="with the stacks whose file the change removes")
    options = parser.parse_args(arguments)
    words = ["git", "diff", "--name-only", "--no-renames", f"{options.base}...HEAD"]
    changed = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = {found[1]: path for path in PROJECT.glob("Pulumi.*.yaml") if (found := _STACK.fullmatch(path.name))}
    stacks = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    print(json.dumps([*touched(changed, stacks), *(removed(changed, stacks) if options.removed else [])]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
