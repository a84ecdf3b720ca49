"""`python -m bench.restarts`: seconds from the SIGKILL of a rank to the next step of a job of 2, 4 and 8 hosts.

A host is a launcher on this machine. `ours` restarts the ranks in place. `theirs` is the same job without restarts in
place: every launcher ends, Kubernetes' Job controller backs off, and all launchers start again.

The bench does not wait for the back-off. It adds the controller's delay for the number of failed pods. The start of
pods and containers does not count.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import PROJECT, BenchError, Measure
from bench.rank_processes import WITHOUT_GPU
from bench.trainer_rank import write_digits
from bench.trainer_restart import rank_process

HOSTS = (2, 4, 8)
PAIRS = 3
GOAL = 0.5
"""Maximum ratio of `ours` to `theirs`."""
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10.0, 600.0
"""Delays of the controller:
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/job/job_controller.go"""
FLAGS = ("--epochs=1000000", "--log-steps=1", "--checkpoint-steps=1", "--batch-size=8")


def backoff_seconds(failed_pods: int) -> float:
    """Return the delay of the Job controller after this number of failed pods, if it counts them together."""
    if failed_pods == 0:
        return 0.0
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** (failed_pods - 1), LONGEST_BACKOFF_SECONDS)


def restart_seconds(hosts: int, *, in_place: bool) -> float:
    """Return the seconds from the SIGKILL of the last host's rank to the next step."""
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder), samples=1000)
        with _launchers(hosts, Path(folder), restarts=1 if in_place else 0) as running:
            _wait_for(running, "checkpoint ", "checkpoint ")
            os.kill(rank_process(running[-1].pid, hosts - 1), signal.SIGKILL)
            killed = time.perf_counter()
            if in_place:
                _wait_for(running, "resume ", "train ")
                return time.perf_counter() - killed
            assert running[0].stdout
            for _ in running[0].stdout:
                pass
            failed = [launcher.wait() for launcher in running]
            ended = time.perf_counter() - killed
        with _launchers(hosts, Path(folder), restarts=0) as running:
            began = time.perf_counter()
            _wait_for(running, "resume ", "train ")
            return ended + backoff_seconds(len(failed)) + time.perf_counter() - began


@contextmanager
def _launchers(hosts: int, folder: Path, restarts: int) -> Iterator[list[subprocess.Popen[str]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [f"--nnodes={hosts}", "--nproc-per-node=1", f"--max-restarts={restarts}"]
    options += ["--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{port}"]
    words = ["trainer", "digits", *FLAGS, f"--data-dir={folder}", f"--bucket=file://{folder}/bucket"]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "trainer.launch", *options, f"--node-rank={host}", "-m", *words],
            cwd=PROJECT,
            env={**os.environ, **WITHOUT_GPU, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL if host else subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for host in range(hosts)
    ]
    try:
        yield running
    finally:
        for launcher in running:
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()


def _wait_for(running: list[subprocess.Popen[str]], *starts: str) -> None:
    """Wait until host 0 has printed lines with these prefixes, in this order."""
    printed = running[0].stdout
    assert printed
    for start in starts:
        if not any(line.startswith(start) for line in printed):
            raise BenchError(f"host 0 ended before it printed {start!r}")


def main() -> int:
    """Print a line for each number of hosts. Return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    asked = parser.parse_args()
    is_held = True
    for hosts in asked.hosts:
        pairs = [
            (restart_seconds(hosts, in_place=True), restart_seconds(hosts, in_place=False)) for _ in range(asked.pairs)
        ]
        ours, theirs = zip(*pairs, strict=True)
        measure = Measure(name=f"restart of {hosts} hosts", ours=ours, theirs=theirs, goal=GOAL)
        print(measure.line(), flush=True)
        is_held = is_held and measure.is_held
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
