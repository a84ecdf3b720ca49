"""Claims of the trainer on this machine's GPU: Trainyard's loop against four others, and images per second."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from bench.measure import BenchError, Measure
from bench.rank_processes import compared, in_rounds, ranks
from bench.reference_loops import first_gpu

ROUNDS = 15
GOALS = {
    ("gpu-loop-floor", "best", "plain"): 1 / 0.98,
    ("gpu-torchvision-loop", "ours", "torchvision"): 1.0,
    ("gpu-imagenet-loop", "ours", "imagenet"): 1.0,
    ("gpu-best-settings", "best", "torchvision"): 0.5,
    ("gpu-timm", "best", "timm"): 1.0,
}
"""Maximum ratio of time for each measure and its two sides."""
FLOORS = {"NVIDIA H200": (4000.0, 5800.0)}
"""Minimum rate and goal of a GPU, in images per second of ResNet-50."""
NO_FLOOR = (None, None)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Images per second. It is a claim if the GPU has a minimum rate, else only a result."""

    name: str
    """Name of the measure."""
    gpu: str
    """Name of the GPU."""
    rate: float
    """Images per second."""
    floor: float | None
    """Minimum rate, or None if the GPU has none."""
    goal: float | None
    """Rate to reach, or None."""

    @property
    def is_held(self) -> bool:
        """True if the minimum rate is met or there is none."""
        return self.floor is None or self.rate >= self.floor

    def line(self) -> str:
        """Return the measure in one line."""
        start = f"{self.name}  {self.rate:,.0f} images/s on {self.gpu}"
        if self.floor is None or self.goal is None:
            return f"{start}  no floor is set for it"
        return f"{start}  floor {self.floor:,.0f}, goal {self.goal:,.0f}  {'held' if self.is_held else 'short'}"

    def record(self) -> dict[str, Any]:
        """Return the measure for tools."""
        return {**vars(self), "held": self.is_held}


def has_gpu() -> bool:
    """Return True if this machine has a GPU that torch can use."""
    return torch.cuda.is_available()


def on_gpu() -> tuple[Measure | Rate, ...]:
    """Measure all sides alternately: Trainyard's in one process, those of reference scripts in another."""
    if not has_gpu():
        raise BenchError("there is no GPU here that torch can compute on")
    with (
        ranks("gpu", threads=1, program="bench.gpu_rank", gpu=True) as ours,
        ranks("gpu", threads=1, program="bench.reference_loops", gpu=True) as theirs,
    ):
        sides = {"ours": ours, "torchvision": theirs, "best": ours, "timm": theirs, "plain": ours}
        taken = in_rounds("gpu", {**sides, "imagenet": theirs, "compiled": ours}, ROUNDS)
    config, gpu = first_gpu(), torch.cuda.get_device_name(0)
    images = config.batch_size * config.steps_per_epoch
    rates = {side: images / median(taken[side]) for side in ("best", "compiled")}
    return (*compared(taken, GOALS), *rates_of(gpu, rates))


def rates_of(gpu: str, rates: dict[str, float]) -> tuple[Rate, ...]:
    """Return the rates of the sides. The minimum rate applies to the fastest, which a user of this GPU would choose."""
    fastest = max(rates, key=lambda side: rates[side])
    return tuple(
        Rate(name=f"gpu-rate-{side}", gpu=gpu, rate=rate, floor=floor, goal=goal)
        for side, rate in rates.items()
        for floor, goal in (FLOORS.get(gpu, NO_FLOOR) if side == fastest else NO_FLOOR,)
    )
