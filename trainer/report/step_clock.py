"""Where the time of the steps goes: waiting for data, this rank's own work, waiting for the other ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn

Mark = float | torch.cuda.Event
"""A moment: on CUDA one of the device's, so that the host need not wait for it."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Seconds of some steps, all together."""

    steps: int
    """How many steps."""
    total: float
    """From the moment each step asks for its data to the end of its update."""
    data: float
    """Waiting for data: on CUDA the device's, which may have work left while the host waits."""
    all_reduce: float
    """From the end of each backward pass of this rank's own to the last gradient of all ranks: what of the exchange
    was not hidden behind it."""

    @property
    def own(self) -> float:
        """This rank's own part: what would be the same if the others were faster or slower."""
        return self.total - self.all_reduce


class StepClock:
    """Takes the times of steps; nothing waits for the device until `take`."""

    def __init__(self, model: nn.Module, device: torch.device, *, world: int) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[tuple[Mark, Mark, Mark | None, Mark | None, Mark]] = []
        self._own_end: Mark | None = None
        # On XLA the backward pass is only noted down here, and runs later as a whole.
        if world > 1 and device.type != "xla":
            # Gradients come from the last layer to the first: after the first one's there is only waiting.
            first = next(parameter for parameter in model.parameters() if parameter.requires_grad)
            first.register_post_accumulate_grad_hook(self._own_part_ends)  # type: ignore[no-untyped-call]  # untyped
        self.useful = 0.0
        """Seconds of all steps so far, without their waiting for data."""

    def begin(self) -> None:
        """A step asks for its data."""
        self._begun = self._now()

    def fed(self) -> None:
        """The data is there."""
        self._fed = self._now()

    def reduced(self) -> None:
        """The gradients of all ranks are there."""
        self._own, self._own_end = self._own_end, None
        self._reduced = self._now() if self._own is not None else None

    def end(self) -> None:
        """The update is done."""
        self._marks.append((self._begun, self._fed, self._own, self._reduced, self._now()))

    def take(self) -> StepTimes:
        """The times since the last call; on CUDA the device must have come to the end of the last step."""
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

    def _own_part_ends(self, _parameter: torch.Tensor) -> None:
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
