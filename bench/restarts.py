"""`python -m bench.restarts`: seconds from the SIGKILL of a rank to the next step of a job of 2, 4 and 8 hosts.

A host is a launcher on this machine. `ours` restarts the ranks in place. `theirs` restarts the pods of the same job:
every launcher ends, Kubernetes' Job controller waits, and all launchers start again.

The bench does not wait for the controller. It adds the controller's delay for the number of failed pods to the measured
time. The times do not include the start of pods and containers.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.measure import PROJECT, WITHOUT_GPU, BenchError, Measure, free_port
from bench.trainer_rank import write_digits
from setup import descendants

HOSTS = (2, 4, 8)
PAIRS = 3
GOAL = 0.5
"""Maximum ratio of `ours` to `theirs`."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 10.0, 600.0
"""Delays of the Job controller:
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/job/job_controller.go"""
FLAGS = ("--epochs=1000000", "--log-steps=1", "--checkpoint-steps=1", "--batch-size=8")
CHECKPOINTS = ("checkpoint ",) * 3
"""Prefixes of the lines that the trainer must print before the bench kills a rank."""


def backoff_seconds(failed_pods: int) -> float:
    """Return the delay of the Job controller after this number of failed pods."""
    if failed_pods == 0:
        return 0.0
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** (failed_pods - 1), MAX_BACKOFF_SECONDS)


def restart_on_one_host(launcher: str) -> float:
    """Return the seconds from the SIGKILL of one of a host's two ranks to the next step. `launcher` is a module."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _launchers(launcher, [["--nproc-per-node=2", "--max-restarts=1"]], Path(folder)) as running,
    ):
        return _seconds_to_next_step(running, rank=1)


def restart_on_hosts(hosts: int, *, in_place: bool) -> float:
    """Return the seconds from the SIGKILL of the last host's rank to the next step."""
    with tempfile.TemporaryDirectory() as folder:
        with _launchers("trainer.launch", _host_options(hosts, int(in_place)), Path(folder)) as running:
            if in_place:
                return _seconds_to_next_step(running, rank=hosts - 1)
            killed = _kill(running, rank=hosts - 1)
            assert running[0].stdout
            for _ in running[0].stdout:
                pass
            for launcher in running:
                launcher.wait()
            ended = time.perf_counter() - killed
        with _launchers("trainer.launch", _host_options(hosts, 0), Path(folder)) as running:
            began = time.perf_counter()
            _wait_for(running, "resume ", "train ")
            return ended + backoff_seconds(hosts) + time.perf_counter() - began


def _host_options(hosts: int, restarts: int) -> list[list[str]]:
    options = [f"--nnodes={hosts}", "--nproc-per-node=1", f"--max-restarts={restarts}"]
    options += ["--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    return [[*options, f"--node-rank={host}"] for host in range(hosts)]


@contextmanager
def _launchers(launcher: str, options: Sequence[Sequence[str]], folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Return a context that starts a launcher for each host, and at its end kills all their processes."""
    write_digits(folder, samples=1000)
    words = ["trainer", "digits", *FLAGS, f"--data-dir={folder}", f"--bucket=file://{folder}/bucket"]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", launcher, *host_options, "-m", *words],
            cwd=PROJECT,
            env={**os.environ, **WITHOUT_GPU, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL if host else subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for host, host_options in enumerate(options)
    ]
    try:
        yield running
    finally:
        # Kill at once. On SIGTERM a launcher would wait until its ranks have saved.
        for pid in [pid for process in running for pid in (process.pid, *descendants(process.pid))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in running:
            process.communicate()


def _seconds_to_next_step(running: list[subprocess.Popen[str]], rank: int) -> float:
    """Kill a rank. Return the seconds until host 0 prints the first step after it has resumed."""
    killed = _kill(running, rank)
    _wait_for(running, "resume ", "train ")
    return time.perf_counter() - killed


def _kill(running: list[subprocess.Popen[str]], rank: int) -> float:
    """Kill a rank of the last host after some checkpoints. Return the time of the kill on the clock `perf_counter`.

    The trainer names each process after its rank.
    """
    _wait_for(running, *CHECKPOINTS)
    for pid in descendants(running[-1].pid):
        if Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == f"rank-{rank}":
            os.kill(pid, signal.SIGKILL)
            return time.perf_counter()
    raise BenchError(f"there is no process of rank {rank}")


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
    options = parser.parse_args()
    is_met = True
    for hosts in options.hosts:
        pairs = [
            (restart_on_hosts(hosts, in_place=True), restart_on_hosts(hosts, in_place=False))
            for _ in range(options.pairs)
        ]
        ours, theirs = zip(*pairs, strict=True)
        measure = Measure(name=f"restart of {hosts} hosts", ours=ours, theirs=theirs, goal=GOAL)
        print(measure.line(), flush=True)
        is_met = is_met and measure.is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
