"""`make test`: run pytest on all cores, or in this process for named files."""

from __future__ import annotations

import os
import subprocess
import sys

from commands.environment import PROJECT, stack_environment

WORKERS_LIMIT = 8
"""Largest number of workers. Each needs up to 3 GiB of memory for a control plane or for ranks of torch."""


def main() -> int:
    """Run pytest with the stack's tools on PATH. Pass the arguments on to pytest."""
    options = sys.argv[1:]
    has_files = any(not each.startswith("-") for each in options)
    workers = 0 if has_files else min(len(os.sched_getaffinity(0)), WORKERS_LIMIT)
    # The order of tests/lanes.py: slow tests first.
    distribution = ["-n", str(workers), "--dist", "loadgroup", "--no-loadscope-reorder"]
    words = [sys.executable, "-m", "pytest", *distribution, "--durations=30", *options]
    return subprocess.run(words, cwd=PROJECT, env=stack_environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
