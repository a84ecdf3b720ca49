"""Measure: alternate timing of two sides, the median of their ratios, its spread, and the goal."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
PAIRS = 5
"""Default number of pairs of a measure."""
RESULT = "RESULT"
"""First word of the answer of a process that runs blocks of steps. The seconds follow."""


class BenchError(RuntimeError):
    """Error for a measure that could not be taken. The message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Claim that `ours` takes at most `goal` times as long as `theirs`."""

    name: str
    """Name of the measure."""
    ours: tuple[float, ...]
    """Seconds of `ours`, in the order of the run."""
    theirs: tuple[float, ...]
    """Seconds of `theirs`, each measured just after `ours`."""
    goal: float
    """Maximum ratio that meets the goal."""
    unit: str = "s"
    """Unit of `ours` and `theirs`."""

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios. A temporary slowdown of the machine affects both values of a pair."""
        return median(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest ratio of all pairs."""
        ratios = [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        return min(ratios), max(ratios)

    @property
    def is_held(self) -> bool:
        """True if the goal is met."""
        return self.ratio <= self.goal

    def line(self) -> str:
        """Return the measure in one line."""
        low, high = self.spread
        return (
            f"{self.name}  ours {median(self.ours):.2f} {self.unit}  "
            f"theirs {median(self.theirs):.2f} {self.unit}  "
            f"ratio {self.ratio:.3f} ({low:.3f} to {high:.3f} in {len(self.ours)} pairs)  "
            f"goal {self.goal:.2f}  {'held' if self.is_held else 'short'}"
        )

    def record(self) -> dict[str, Any]:
        """Return the measure for tools."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": median(self.ours),
            "theirs": median(self.theirs),
            "ratio": self.ratio,
            "spread": list(self.spread),
            "goal": self.goal,
            "held": self.is_held,
            "pairs": [list(pair) for pair in zip(self.ours, self.theirs, strict=True)],
        }


def in_turn(
    name: str,
    goal: float,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    pairs: int = PAIRS,
    *,
    progress: bool = True,
) -> Measure:
    """Time both sides alternately, A B A B ..., after one pair that does not count. `progress` shows each pair."""
    first: list[float] = []
    second: list[float] = []
    for number in range(pairs + 1):
        pair = ours(), theirs()
        if number:
            first.append(pair[0])
            second.append(pair[1])
        if progress:
            print(f"  {name} {number}/{pairs}: {pair[0]:.2f} s, {pair[1]:.2f} s", file=sys.stderr, flush=True)
    return Measure(name=name, ours=tuple(first), theirs=tuple(second), goal=goal)


def machine() -> dict[str, Any]:
    """Return the conditions of the measures: machine, versions, commit."""
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
