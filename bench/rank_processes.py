"""Processes that run blocks of steps for a trainer measure, and alternate timing of several sides."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.measure import PROJECT, RESULT, BenchError, Measure

Ask = Callable[[str], tuple[float, ...]]
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Environment that hides GPUs, so that a CPU measure also runs on the CPU of a machine with a GPU."""


@contextmanager
def ranks(
    kind: str, *, world: int = 1, threads: int, program: str = "bench.trainer_rank", gpu: bool = False
) -> Iterator[Ask]:
    """Yield a function that makes the processes run a block of steps, with `threads` CPU threads each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        found = [
            subprocess.Popen(
                [sys.executable, "-m", program, kind, folder],
                cwd=PROJECT,
                env={
                    **os.environ,
                    **({} if gpu else WITHOUT_GPU),
                    "OMP_NUM_THREADS": str(threads),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(world),
                    "LOCAL_WORLD_SIZE": str(world),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(world)
        ]
        first = found[0]

        def ask(block: str) -> tuple[float, ...]:
            assert first.stdin
            assert first.stdout
            first.stdin.write(block + "\n")
            first.stdin.flush()
            for line in first.stdout:
                if line.startswith(RESULT):
                    return tuple(float(word) for word in line.split()[1:])
            raise BenchError(f"the processes of {kind} have ended; what they said is above")

        try:
            yield ask
        finally:
            for process in found:
                process.kill()
                process.wait()


def in_rounds(name: str, sides: Mapping[str, Ask], rounds: int) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each side, by its block's name. Sides alternate, after one round that does not count."""
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, ask in sides.items():
            (found,) = ask(side)
            if number:
                taken[side].append(found)
        print(f"  {name} {number}/{rounds}", file=sys.stderr, flush=True)
    return {side: tuple(seconds) for side, seconds in taken.items()}


def compared(
    taken: Mapping[str, tuple[float, ...]], goals: Mapping[tuple[str, str, str], float]
) -> tuple[Measure, ...]:
    """Return a measure for each name, side and other side, with its goal."""
    return tuple(
        Measure(name=name, ours=taken[side], theirs=taken[other], goal=goal)
        for (name, side, other), goal in goals.items()
    )
