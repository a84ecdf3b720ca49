"""`make test`: every test, each folder on its own, and a summary that says what could not run and why."""

from __future__ import annotations

import subprocess
import sys

from commands.environment import PROJECT, stack_environment


def main() -> int:
    """Run pytest with the stack's tools on PATH; arguments are passed on to pytest."""
    environment = stack_environment()
    words = [sys.executable, "-m", "pytest", "-ra", "--durations=30", *sys.argv[1:]]
    return subprocess.run(words, cwd=PROJECT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
