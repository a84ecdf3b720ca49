"""Measurements: time two sides alternately, and compare the median of their ratios with a goal.

The sides of a trainer benchmark run in separate processes (`ranks`), so that this module does not import torch.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
PAIRS = 5
"""Default number of pairs of a measurement."""
RESULT = "RESULT"
"""First word of a rank's answer after a block of steps. The block's numbers follow; the first is in seconds."""
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Environment that hides GPUs, so that measurements for CPUs use the CPU even on a machine with a GPU."""
RunBlock = Callable[[str], tuple[float, ...]]
"""Function that runs the block with a name and returns the block's numbers. The first is in seconds."""


class BenchError(RuntimeError):
    """Error for a measurement that could not run. The message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Measured values of two sides, to check the claim that `ours` is at most `goal` times `theirs`."""

    name: str
    ours: tuple[float, ...]
    """Values of `ours` in `unit`, in the order of the run."""
    theirs: tuple[float, ...]
    """Values of `theirs`, each from the same pair as the value of `ours` at its index."""
    goal: float
    """Maximum ratio that meets the goal."""
    unit: str = "s"
    """Unit of `ours` and `theirs`."""

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios. It changes little if the machine is slow for a while, because both sides of a
        pair are then slow."""
        return median(self._ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest ratio of all pairs."""
        return min(self._ratios), max(self._ratios)

    @property
    def _ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def is_met(self) -> bool:
        """True if the goal is met."""
        return self.ratio <= self.goal

    def line(self) -> str:
        """Return the measurement in one line."""
        low, high = self.spread
        return (
            f"{self.name}  ours {median(self.ours):.2f} {self.unit}  "
            f"theirs {median(self.theirs):.2f} {self.unit}  "
            f"ratio {self.ratio:.3f} ({low:.3f} to {high:.3f} in {len(self.ours)} pairs)  "
            f"goal {self.goal:.2f}  {'met' if self.is_met else 'missed'}"
        )

    def record(self) -> dict[str, Any]:
        """Return the measurement for tools."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": median(self.ours),
            "theirs": median(self.theirs),
            "ratio": self.ratio,
            "spread": list(self.spread),
            "goal": self.goal,
            "met": self.is_met,
            "pairs": [list(pair) for pair in zip(self.ours, self.theirs, strict=True)],
        }


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result that is not a ratio of two sides, such as a count or a rate."""

    name: str
    text: str
    """Result and goal as the line shows them."""
    is_met: bool
    """True if the goal is met or there is no goal."""
    facts: Mapping[str, Any]
    """Result and goal for tools."""

    def line(self) -> str:
        """Return the measurement in one line."""
        return f"{self.name}  {self.text}"

    def record(self) -> dict[str, Any]:
        """Return the measurement for tools."""
        return {"name": self.name, **self.facts, "met": self.is_met}


def alternate(
    name: str, goal: float, ours: Callable[[], float], theirs: Callable[[], float], pairs: int = PAIRS
) -> Measure:
    """Time both sides alternately, A B A B ..., after one pair that does not count."""
    times = time_rounds(name, {"ours": lambda _: (ours(),), "theirs": lambda _: (theirs(),)}, pairs)
    return Measure(name=name, ours=times["ours"], theirs=times["theirs"], goal=goal)


def time_rounds(name: str, sides: Mapping[str, RunBlock], rounds: int) -> dict[str, tuple[float, ...]]:
    """Return side -> seconds of its rounds. The sides alternate. The first round does not count."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        found = {side: run_block(side)[0] for side, run_block in sides.items()}
        for side, seconds in found.items() if number else ():
            times[side].append(seconds)
        progress = ", ".join(f"{side} {seconds:.2f} s" for side, seconds in found.items())
        print(f"  {name} {number}/{rounds}: {progress}", file=sys.stderr, flush=True)
    return {side: tuple(seconds) for side, seconds in times.items()}


def compare(times: Mapping[str, tuple[float, ...]], goals: Mapping[tuple[str, str, str], float]) -> tuple[Measure, ...]:
    """Return a measurement for each key of `goals`. A key has the name, the side `ours` and the side `theirs`."""
    return tuple(
        Measure(name=name, ours=times[side], theirs=times[other], goal=goal)
        for (name, side, other), goal in goals.items()
    )


@contextmanager
def ranks(
    kind: str, *, world: int = 1, threads: int, program: str = "bench.trainer_rank", gpu: bool = False
) -> Iterator[RunBlock]:
    """Start `world` ranks with `threads` CPU threads each. Yield a function that makes them run a block of steps."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        processes = [
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
                    "MASTER_PORT": str(port),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(world)
        ]
        first = processes[0]

        def run_block(block: str) -> tuple[float, ...]:
            assert first.stdin
            assert first.stdout
            first.stdin.write(block + "\n")
            first.stdin.flush()
            for line in first.stdout:
                if line.startswith(RESULT):
                    return tuple(float(word) for word in line.split()[1:])
            raise BenchError(f"the processes of {kind} have ended; their error output is above")

        try:
            yield run_block
        finally:
            for process in processes:
                process.kill()
                process.wait()


def two_sides(
    name: str, kind: str, goal: float, *, world: int = 1, threads: int, pairs: int, gpu: bool = False
) -> Measure:
    """Measure the blocks `ours` and `theirs` of a kind of trainer benchmark in the same processes."""
    with ranks(kind, world=world, threads=threads, gpu=gpu) as run_block:
        return alternate(name, goal, lambda: run_block("ours")[0], lambda: run_block("theirs")[0], pairs)


def free_port() -> int:
    """Return a free port on 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def machine() -> dict[str, Any]:
    """Return the conditions of the measurements: machine, versions, commit."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("pulumi", "pulumi-kubernetes", "torch")},
        },
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain").splitlines()),
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
