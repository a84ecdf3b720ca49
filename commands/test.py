"""`make test` runs pytest: in one process for named files, else in several. `make coverage` measures each lane.

tests/lanes.py defines the lanes and the options that select tests. Without `--coverage`, pytest gets all arguments.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from commands.environment import PROJECT, stack_environment
from infra.local import lifecycle
from infra.local.settings import cache_folder
from infra.operator_releases import RELEASES
from setup import operators
from setup.disk import DiskNeed, remaining_need
from setup.progress import run_steps

WORKERS_LIMIT = 8
"""Maximum number of pytest's processes. Each needs up to 3 GiB of memory for a control plane or for ranks of torch."""
FAILED_STATUS, INTERRUPTED_STATUS = 1, 2
"""Exit status of pytest: https://docs.pytest.org/en/stable/reference/exit-codes.html"""
LONG_TESTS = DiskNeed(folder=cache_folder, peak_bytes=50_000_000_000)
"""Estimated disk space for the images and clusters of the long tests. The images for the trainer, PyTorch/XLA, Ray and
the frameworks take 16 GB, and 30 GB during the build for XLA (2026-11-28)."""
LANES = ("fast", "process", "pulumi", "cluster", "end_to_end")


def main() -> int:
    """Run pytest with the stack's tools on PATH. Return its exit status."""
    if sys.argv[1:2] == ["--coverage"]:
        if unknown := {*sys.argv[2:]} - {*LANES}:
            print(f"LANE={', '.join(sorted(unknown))}: must be one of {', '.join(LANES)}", file=sys.stderr)
            return 2
        return coverage(sys.argv[2:] or list(LANES))
    if "-mlong" in sys.argv[1:]:
        cache_folder().mkdir(parents=True, exist_ok=True)
        print(disk_warning(remaining_need(LONG_TESTS), shutil.disk_usage(cache_folder()).free), end="", flush=True)
    return run_pytest(sys.argv[1:], stack_environment())


def disk_warning(needed: int, free: int) -> str:
    """Return a warning if the long tests need more disk space than is free, else an empty text."""
    if free >= needed:
        return ""
    return f"WARNING: the long tests need {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free: some will fail\n"


def run_pytest(options: list[str], environment: Mapping[str, str], *, module: tuple[str, ...] = ("pytest",)) -> int:
    """Run pytest, then stop the clusters that its tests have left running. Return pytest's exit status.

    After Ctrl-C, xdist gives a worker 10 seconds, which is too short to remove a cluster.
    """
    has_files = any(not each.startswith("-") for each in options)
    # Tests of the fast lane read these files, and may not download them.
    run_steps(operators.steps(RELEASES, cluster=False))
    workers = 0 if has_files else min(len(os.sched_getaffinity(0)), WORKERS_LIMIT)
    # Keep the order of tests/lanes.py, which puts slow tests first.
    distribution = ["-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder"]
    folder = Path(mkdtemp(prefix="trainyard-"))
    words = [sys.executable, "-m", *module, *distribution, "--durations=30", f"--basetemp={folder}", *options]
    with subprocess.Popen(words, cwd=PROJECT, env=environment) as pytest:
        status = None
        while status is None:
            with suppress(KeyboardInterrupt):  # pytest gets Ctrl-C too, and ends.
                status = pytest.wait()
    # Keep this checkout's shared clusters unless this run was interrupted: another run may use them.
    owners = [folder, PROJECT / "tests"] if status == INTERRUPTED_STATUS else [folder]
    for cluster in lifecycle.saved_clusters():
        if any(Path(cluster.owner).is_relative_to(each) for each in owners):
            print(f"removing the cluster of {cluster.owner}", flush=True)
            lifecycle.stop(cluster)
    if status == FAILED_STATUS:
        print(f"files of failed tests: {folder}")
    else:
        # Processes of an interrupted test may still write files.
        shutil.rmtree(folder, ignore_errors=status == INTERRUPTED_STATUS)
    return status


def coverage(lanes: list[str]) -> int:
    """Run each lane. Print the line and branch coverage of each lane and of all lanes. Return 1 if a test fails."""
    has_failed = False
    with TemporaryDirectory() as folder:
        for lane in lanes:
            environment = stack_environment() | {"COVERAGE_FILE": f"{folder}/{lane}.data"}
            has_failed |= run_pytest([f"--lane={lane}"], environment, module=("coverage", "run", "-m", "pytest")) != 0
            _coverage(folder, lane, "combine", *map(str, Path(folder).glob(f"{lane}.data.*")))
        _coverage(folder, "all", "combine", "--keep", *(f"{folder}/{lane}.data" for lane in lanes))
        print(f"{'lane':12} {'lines':>8} {'branches':>9}")
        for lane in [*lanes, "all"]:
            _coverage(folder, lane, "json", "--quiet", "-o", f"{folder}/{lane}.json")
            totals = json.loads(Path(folder, f"{lane}.json").read_text(encoding="utf-8"))["totals"]
            lines = 100 * totals["covered_lines"] / totals["num_statements"]
            branches = 100 * totals["covered_branches"] / totals["num_branches"]
            print(f"{lane:12} {lines:7.1f}% {branches:8.1f}%")
    return int(has_failed)


def _coverage(folder: str, lane: str, *words: str) -> None:
    environment = {**os.environ, "COVERAGE_FILE": f"{folder}/{lane}.data"}
    command = [sys.executable, "-m", "coverage", *words]
    subprocess.run(command, cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main())
