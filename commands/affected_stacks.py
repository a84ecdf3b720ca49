"""The stacks that the changes since a commit affect, as JSON: some by name, or all if the program itself changed."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
PROGRAM_PATHS = (
    *("__main__.py", "infra/", "policy/", "settings/", "stack/", "workloads/"),
    *("images/", "setup/go/", "trainer/", "Pulumi.yaml", "requirements"),
)
"""Prefixes of the paths that every stack depends on. A test compares them with the modules that the program loads."""
JOB_PAGES = PurePosixPath("docs/recipes")
"""Folder of the example pages that a stack's `jobs` may name."""
_STACK = re.compile(r"Pulumi\.([\w-]+)\.yaml")


def is_program(path: str) -> bool:
    """Return True if every stack depends on the path."""
    return path.startswith(PROGRAM_PATHS)


def is_named(path: str, text: str) -> bool:
    """Return True if a stack's file names the path: a script of the checkout, or a page with a job.

    This runs before set-up, so it cannot parse YAML. Another use of a page's name counts too.
    """
    pure = PurePosixPath(path)
    page = pure.parent == JOB_PAGES and re.search(rf"(?<![\w-]){re.escape(pure.stem)}(?![\w-])", text)
    return bool(page) or f"./{path}" in text


def affected(changed: Iterable[str], stacks: Mapping[str, str]) -> list[str]:
    """Return the stacks that depend on a changed path. `stacks` has each stack's name and the text of its file."""
    paths = list(changed)
    if any(map(is_program, paths)):
        return sorted(stacks)
    own = {found[1] for path in paths if (found := _STACK.fullmatch(path))}
    return sorted(name for name, text in stacks.items() if name in own or any(is_named(path, text) for path in paths))


def removed(changed: Iterable[str], stacks: Iterable[str]) -> list[str]:
    """Return the stacks whose file the change removes."""
    return sorted({found[1] for path in changed if (found := _STACK.fullmatch(path))} - set(stacks))


def changed_paths(revisions: str) -> list[str]:
    """Return the paths that `git diff` of the revisions names. Raises CalledProcessError for an unknown commit."""
    words = ["git", "diff", "-z", "--name-only", "--no-renames", revisions, "--"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.split("\0") if path]


def main(arguments: list[str]) -> int:
    """Print the stacks. Raises CalledProcessError for an unknown commit."""
    parser = argparse.ArgumentParser(prog="python -m commands.affected_stacks", description=__doc__)
    parser.add_argument("base", help="the commit before the change")
    parser.add_argument("--removed", action="store_true", help="also print the stacks whose file the change removes")
    options = parser.parse_args(arguments)
    changed = changed_paths(f"{options.base}...HEAD")
    files = {found[1]: path for path in PROJECT.glob("Pulumi.*.yaml") if (found := _STACK.fullmatch(path.name))}
    stacks = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    print(json.dumps([*affected(changed, stacks), *(removed(changed, stacks) if options.removed else [])]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
