"""`make check`: formatting, lint, types, contracts, shell scripts, workflows, Dockerfiles; says which failed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from commands.environment import PROJECT

BIN = Path(sys.executable).parent
TYPED = (
    "infra",
    "policy",
    "workloads",
    "trainer",
    "setup",
    "rehearsal",
    "commands",
    "bench",
    "docs",
    "tests",
    "stack_config.py",
    "__main__.py",
)


def tracked(*patterns: str) -> list[str]:
    """Files that git tracks, by pattern."""
    done = subprocess.run(["git", "ls-files", "--", *patterns], cwd=PROJECT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def shell_scripts() -> list[str]:
    """Tracked files whose first line names a shell."""
    found = []
    for name in tracked():
        path = PROJECT / name
        if path.is_file() and path.suffix in ("", ".sh"):
            with path.open("rb") as file:
                first = file.readline()
            if first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"bash")):
                found.append(name)
    return found


def checks() -> list[tuple[str, list[str]]]:
    """Name and command of each check."""
    return [
        ("format", [str(BIN / "ruff"), "format", "--check", "."]),
        ("lint", [str(BIN / "ruff"), "check", "."]),
        ("types", [str(BIN / "mypy"), *TYPED]),
        ("import contracts", [str(BIN / "lint-imports")]),
        ("shell scripts", ["shellcheck", *shell_scripts()]),
        ("workflows", [str(BIN / "zizmor"), "--offline", ".github/workflows"]),
        ("Dockerfiles", [str(BIN / "hadolint"), *tracked("*Dockerfile*")]),
    ]


def main() -> int:
    """Run every check, also after one has failed."""
    failed = []
    for name, words in checks():
        if not shutil.which(words[0]):
            print(f"-- {name}: {words[0]} is missing; Debian package {words[0]}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"-- {name}", flush=True)
        if subprocess.run(words, cwd=PROJECT, check=False).returncode != 0:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
