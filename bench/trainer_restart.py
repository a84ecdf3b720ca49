"""Restart measure: time from the SIGKILL of a worker to the next new step, under a launcher with its defaults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import PROJECT, BenchError
from bench.rank_processes import WITHOUT_GPU
from bench.trainer_rank import write_digits


def restart(launcher: str) -> float:
    """Return the seconds from the SIGKILL of one of two ranks to the next step, under a launcher with its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder), samples=1000)
        flags = ["--epochs=1000000", "--log-steps=1", "--checkpoint-steps=1", "--batch-size=16"]
        ranks_twice = ["--nproc-per-node=2", "--max-restarts=1"]
        places = [f"--data-dir={folder}", f"--bucket=file://{folder}/bucket"]
        process = subprocess.Popen(
            [sys.executable, "-m", launcher, *ranks_twice, "-m", "trainer", "digits", *flags, *places],
            cwd=PROJECT,
            env={**os.environ, **WITHOUT_GPU, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout
            for event, times in (("checkpoint", 3), ("resume", 1), ("train", 1)):
                for _ in range(times):
                    if not any(line.startswith(f"{event} ") for line in process.stdout):
                        raise BenchError(f"{launcher} ended before an event {event!r}")
                if event == "checkpoint":
                    os.kill(rank_process(process.pid, 1), signal.SIGKILL)
                    killed = time.perf_counter()
            return time.perf_counter() - killed
        finally:
            # Kill at once. On SIGTERM a launcher waits for its ranks, which save first.
            left = [rank_process(process.pid, rank) for rank in (0, 1)]
            os.killpg(process.pid, signal.SIGKILL)
            for rank in left:
                os.kill(rank, signal.SIGKILL)
            process.communicate()


def rank_process(parent: int, rank: int) -> int:
    """Return the descendant of `parent` that is this rank. The trainer names its process after the rank."""
    waiting = [parent]
    while waiting:
        found = waiting.pop()
        if Path(f"/proc/{found}/comm").read_text(encoding="ascii").strip() == f"rank-{rank}":
            return found
        waiting += map(int, Path(f"/proc/{found}/task/{found}/children").read_text(encoding="ascii").split())
    raise BenchError(f"there is no process of rank {rank}")
