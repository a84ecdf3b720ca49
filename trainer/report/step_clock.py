"""Time of the steps: waiting for data, this rank's own work, waiting for other ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn

Mark = float | torch.cuda.Event
"""A moment. On CUDA it is an event of the device, so that the host does not wait."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Sums over some steps, in seconds."""

    steps: int
    """Number of steps."""
    total: float
    """From each step's request for data to the end of its update."""
    data: float
    """Waiting for data. On CUDA the device's wait, which is shorter than the host's if the device has work left."""
    all_reduce: float
    """From the end of each rank's backward pass to the last averaged gradient. It is the part of the
    communication that does not overlap with computation."""

    @property
    def own(self) -> float:
        """This rank's own part, which does not depend on the speed of the other ranks."""
        return self.total - self.all_reduce


class StepClock:
    """Measure the times of steps. Only `take` waits for the device."""

    def __init__(self, model: nn.Module, device: torch.device, *, world: int) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[tuple[Mark, Mark, Mark | None, Mark | None, Mark]] = []
        self._own_end: Mark | None = None
        # On XLA the backward pass is only recorded here and runs later with the whole step.
        if world > 1 and device.type != "xla":
            # Gradients arrive from the last layer to the first. After the first layer's gradient the rank only waits.
            first = next(parameter for parameter in model.parameters() if parameter.requires_grad)
            first.register_post_accumulate_grad_hook(self._mark_own_end)  # type: ignore[no-untyped-call]  # untyped
        self.useful = 0.0
        """Seconds of all steps so far, without the waiting for data."""

    def begin(self) -> None:
        """Mark the start of a step, before it requests its data."""
        self._begun = self._now()

    def data_ready(self) -> None:
        """Mark that the data has arrived."""
        self._fed = self._now()

    def gradients_ready(self) -> None:
        """Mark that the averaged gradients have arrived."""
        self._own, self._own_end = self._own_end, None
        self._reduced = self._now() if self._own is not None else None

    def end(self) -> None:
        """Mark the end of the update."""
        self._marks.append((self._begun, self._fed, self._own, self._reduced, self._now()))

    def take(self) -> StepTimes:
        """Return the times since the last call. On CUDA the device must have finished the last step."""
        total = data = all_reduce = 0.0
        for begun, fed, own, reduced, ended in self._marks:
            total += _between(begun, ended)
            data += _between(begun, fed)
            if own is not None and reduced is not None:
                all_reduce += _between(own, reduced)
        times = StepTimes(steps=len(self._marks), total=total, data=data, all_reduce=all_reduce)
        self._marks.clear()
        self.useful += total - data
        return times

    def _mark_own_end(self, _parameter: torch.Tensor) -> None:
        self._own_end = self._now()

    def _now(self) -> Mark:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no type for it
        event.record()
        return event


def _between(start: Mark, end: Mark) -> float:
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    assert isinstance(start, torch.cuda.Event)
    assert isinstance(end, torch.cuda.Event)
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000
