"""The trainer's claims on a GPU, where this machine has one: our loop against four others, and images a second."""

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
"""The highest ratio of time that is held, of each measure and its two sides."""
FLOORS = {"NVIDIA H200": (4000.0, 5800.0)}
"""Images a second of ResNet-50 that a GPU must train, and the goal."""
NO_FLOOR = (None, None)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Images a second; a claim where a floor is set for the GPU, and else a fact."""

    name: str
    """Name of the measure."""
    gpu: str
    """What the GPU calls itself."""
    rate: float
    """Images a second."""
    floor: float | None
    """The lowest rate that is held; None where none is set."""
    goal: float | None
    """The rate to reach."""

    @property
    def is_held(self) -> bool:
        """Whether the floor is met."""
        return self.floor is None or self.rate >= self.floor

    def line(self) -> str:
        """The measure in one line."""
        start = f"{self.name}  {self.rate:,.0f} images/s on {self.gpu}"
        if self.floor is None or self.goal is None:
            return f"{start}  no floor is set for it"
        return f"{start}  floor {self.floor:,.0f}, goal {self.goal:,.0f}  {'held' if self.is_held else 'short'}"

    def record(self) -> dict[str, Any]:
        """The measure for tools."""
        return {**vars(self), "held": self.is_held}


def has_gpu() -> bool:
    """Whether this machine has a GPU that torch can compute on."""
    return torch.cuda.is_available()


def on_gpu() -> tuple[Measure | Rate, ...]:
    """All sides in turn: ours in one process, those of reference scripts in another."""
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
    """The sides' rates; the floor is for the fastest, which is what a user of this GPU would take."""
    fastest = max(rates, key=lambda side: rates[side])
    return tuple(
        Rate(name=f"gpu-rate-{side}", gpu=gpu, rate=rate, floor=floor, goal=goal)
        for side, rate in rates.items()
        for floor, goal in (FLOORS.get(gpu, NO_FLOOR) if side == fastest else NO_FLOOR,)
    )
