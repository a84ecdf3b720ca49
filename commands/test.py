"""`make test`: run pytest and print a summary of the skipped tests with their reasons."""

from __future__ import annotations

import subprocess
import sys

from commands.environment import PROJECT, stack_environment


def main() -> int:
    """Run pytest with the stack's tools on PATH. Pass the arguments on to pytest."""
    environment = stack_environment()
    words = [sys.executable, "-m", "pytest", "-ra", "--durations=30", *sys.argv[1:]]
    return subprocess.run(words, cwd=PROJECT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
