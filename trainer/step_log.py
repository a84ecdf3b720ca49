"""Measurements of a run's steps: loss, rates, times and efficiency, reported once the device has computed them."""

from __future__ import annotations

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from trainer.models import on_meta_device

if TYPE_CHECKING:
    from trainer.checkpoints.state import RunState
    from trainer.config import TrainConfig
    from trainer.reporter import Reporter
    from trainer.runtime.base import Runtime
    from trainer.tasks import Task
    from trainer.watchdog import Watchdog

STATM = Path("/proc/self/statm")
"""File with the process's memory in pages. Its second number is the resident memory."""
PEAK_TERAFLOPS = {
    "Tesla T4": (65.0, 8.1),
    "V100": (125.0, 15.7),
    "L4": (121.0, 60.0),
    "L40S": (362.05, 183.0),
    "A100": (312.0, 156.0),
    **dict.fromkeys(("H100", "H200"), (989.0, 494.0)),
    **dict.fromkeys(("B200", "B300"), (2250.0, 1125.0)),
}
"""Peak 10^12 operations a second without sparsity, by part of a GPU's name: in 16 bits, and in 32 bits (or TF32).

From NVIDIA's data sheet of each GPU, in its SXM form if it has one, https://www.nvidia.com/en-us/data-center/.
"""
Mark = float | torch.cuda.Event
"""A point in time: seconds, or on CUDA an event of the device, so that the host does not wait for the device."""
CPU_BATCHES = 32
"""Number of batches that a Meter on a CPU counts together."""


class StepLog:
    """Log of the steps of a run. Only `emit`, `flush` and a step that queues a line wait for the device."""

    def __init__(
        self, config: TrainConfig, task: Task, state: RunState, runtime: Runtime, report: Reporter, watchdog: Watchdog
    ) -> None:
        self._log_steps, self._task = config.log_steps, task
        self._state, self._runtime, self._report, self._watchdog = state, runtime, report, watchdog
        self.meter = task.meter()
        self.clock = RateClock()
        self.steps = StepClock(state.model, runtime.device, world=runtime.world)
        self._flops: float | None = None
        self._peak = config.peak_teraflops * 1e12 or peak_flops(runtime.device, sixteen_bits=config.amp)
        self._logged = 0
        self.is_finite = True
        """True if no reported loss was NaN or infinite."""
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()

    def count(self, units: int, number: int, steps: int) -> None:
        """Count a step of `units` samples or tokens over all ranks, and queue a line if one is due.

        The step is number `number` of the epoch's `steps` steps. A line is due at the first step of a run, every
        `log_steps` steps, and at the last step of an epoch.
        """
        is_first = self.clock.units == 0
        self.clock.units += units
        if is_first or number % self._log_steps == 0 or number == steps:
            self.record(number, steps)

    def record(self, number: int, steps: int) -> None:
        """Queue a line about the steps since the last call."""
        global_step, epoch, counts = self._state.step, self._state.sampler.epoch + 1, self._runtime.counts()
        sums, times = self.meter.sums(), self.steps.take()
        seconds, global_rate = self.clock.lap()
        # Subtract the wait for other ranks, because the watchdog compares each rank's own work.
        self._watchdog.record_work(times.steps, times.total - times.all_reduce)
        self._state.useful_seconds += times.total - times.data

        def line() -> None:
            measures, units = self.meter.take(sums)
            rate = units / seconds / self._runtime.tensor_size
            self._report.event(
                "train",
                global_step=global_step,
                epoch=epoch,
                step=(number, steps),
                **measures,
                rate=rate,
                global_rate=global_rate,
                **self._efficiency(times, rate),
                **counts,
            )
            self.is_finite = self.is_finite and math.isfinite(measures["loss"])

        self._pending.append((global_step + self._runtime.metrics_lag_steps, line))

    def _efficiency(self, times: StepTimes, rate: float) -> dict[str, float]:
        """Return the measures of the last steps, from their times and `rate`, the samples or tokens a second.

        data_wait and all_reduce are percent of the steps' time. memory_mib is the peak allocation on CUDA, else the
        resident memory. teraflops is 10^12 operations a second, and mfu is its percent of the device's peak. goodput is
        the time of all steps without waits for data, in percent of the time since the run first began.
        """
        self._logged += 1
        total = max(times.total, 1e-9)
        lifetime = max(time.time() - self._state.began, 1e-9)
        if self._runtime.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(self._runtime.device)
        else:
            memory = int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        found = {
            "data_wait": 100 * times.data / total,
            "all_reduce": 100 * times.all_reduce / total,
            "memory_mib": memory / 2**20,
            "goodput": min(100.0, 100 * self._state.useful_seconds / lifetime),
        }
        # Count the operations only once, for the second line, so that the first step does not wait for the count.
        if self._logged == 2:
            self._flops = self._task.flops_per_unit(self._state.model)
        if self._flops:
            found["teraflops"] = self._flops * rate / 1e12
            if self._peak:
                found["mfu"] = 100 * self._flops * rate / self._peak
        return found

    def emit(self, up_to: float = math.inf) -> None:
        """Report the queued lines that are due by step `up_to`. Waits for the device."""
        while self._pending and self._pending[0][0] <= up_to:
            self._pending.popleft()[1]()

    def flush(self) -> None:
        """Report all queued lines, and check that every loss so far is finite."""
        self.emit()
        self.is_finite = self.is_finite and self.meter.is_finite()


class Meter:
    """Sums of losses and right predictions on the device. Only `take`, `since` and `is_finite` wait for the device.

    All work of a step is in `add`, so that every step has the same graph on XLA.
    """

    def __init__(self, device: torch.device, *, numbers: int = 3) -> None:
        self._sums = torch.zeros(numbers, dtype=torch.float64, device=device)
        self._taken = torch.zeros(numbers, dtype=torch.float64)
        self._held: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        # On a CPU it is much faster to count many batches at once. On a GPU counting costs nothing, and logits cannot
        # be kept, because the next run of a CUDA graph overwrites them.
        self._max_held = CPU_BATCHES if device.type == "cpu" else 1

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch: the sum of its losses, and the number of samples that the model gets right.

        Samples with a label below 0 do not count. The tensors must not change afterwards.
        """
        self._held.append((loss_sum.detach(), logits.detach(), labels))
        if len(self._held) >= self._max_held:
            self._count_held()

    def _count_held(self) -> None:
        if not self._held:
            return
        losses, all_logits, all_labels = zip(*self._held, strict=True)
        logits, labels = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (all_logits, all_labels))
        counts = torch.stack([(logits.argmax(dim=1) == labels).sum(), (labels >= 0).sum()])
        # Create a new tensor, so that earlier sums stay readable.
        self._sums = self._sums + torch.cat([torch.stack(losses).double().sum().view(1), counts.double()])
        self._held.clear()

    def is_finite(self) -> bool:
        """Return True if no loss was NaN or infinite. Waits for the device."""
        return math.isfinite(self.sums().tolist()[0])

    def sums(self) -> torch.Tensor:
        """Return the sums so far, for `take`. Does not wait for the device."""
        self._count_held()
        return self._sums

    def take(self, sums: torch.Tensor) -> tuple[dict[str, float], int]:
        """Return the means since the last call by name, and the number of samples. Accuracy is in percent."""
        loss, right, count = self.since(sums)
        return {"loss": loss / max(count, 1), "accuracy": 100 * right / max(count, 1)}, int(count)

    def since(self, sums: torch.Tensor) -> list[float]:
        """Return the growth of each sum since the last call. Waits for the device."""
        now = sums.cpu()
        found: list[float] = (now - self._taken).tolist()
        self._taken = now
        return found


class RateClock:
    """Clock for the time between two lines, and for the rate of all ranks together since the start."""

    def __init__(self) -> None:
        self.units = 0
        """Samples or tokens of all ranks since the start."""
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._started = self._last_lap = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def lap(self) -> tuple[float, float]:
        """Return the seconds since the last call, and all ranks' samples or tokens a second since the start."""
        now = time.monotonic()
        since, self._last_lap = now - self._last_lap, now
        return max(since, 1e-9), self.units / max(now - self._started, 1e-9)


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Sums over some steps, in seconds."""

    steps: int
    """Number of steps."""
    total: float
    """Time from each step's request for data to the end of its update."""
    data: float
    """Wait for data. On CUDA it is the device's wait, which is shorter than the host's if earlier work is queued."""
    all_reduce: float
    """Time from the end of this rank's backward pass to the last averaged gradient: the part of the communication that
    does not overlap with computation."""


class StepClock:
    """Clock for the parts of steps. Only `take` waits for the device."""

    def __init__(self, model: nn.Module, device: torch.device, *, world: int) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[tuple[Mark, Mark, Mark | None, Mark | None, Mark]] = []
        self._backward_end: Mark | None = None
        # On XLA the backward pass is only recorded here and runs later with the whole step.
        if world > 1 and device.type != "xla":
            # Gradients arrive from the last layer to the first. After the first layer's gradient the rank only waits.
            first = next(parameter for parameter in model.parameters() if parameter.requires_grad)
            first.register_post_accumulate_grad_hook(self._mark_backward_end)  # type: ignore[no-untyped-call]  # torch has no type

    def begin(self) -> None:
        """Mark the start of a step, before it requests its data."""
        self._started = self._now()

    def data_ready(self) -> None:
        """Mark that the data has arrived."""
        self._data_arrived = self._now()

    def gradients_ready(self) -> None:
        """Mark that the averaged gradients have arrived."""
        self._own_end, self._backward_end = self._backward_end, None
        self._gradients_arrived = self._now() if self._own_end is not None else None

    def end(self) -> None:
        """Mark the end of the update."""
        self._marks.append((self._started, self._data_arrived, self._own_end, self._gradients_arrived, self._now()))

    def take(self) -> StepTimes:
        """Return the times since the last call. On CUDA this waits until the device has finished the last step."""
        total = data = all_reduce = 0.0
        for started, arrived, own, reduced, ended in self._marks:
            total += _between(started, ended)
            data += _between(started, arrived)
            if own is not None and reduced is not None:
                all_reduce += _between(own, reduced)
        times = StepTimes(steps=len(self._marks), total=total, data=data, all_reduce=all_reduce)
        self._marks.clear()
        return times

    def _mark_backward_end(self, _parameter: torch.Tensor) -> None:
        self._backward_end = self._now()

    def _now(self) -> Mark:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no type for it
        event.record()
        return event


def _between(start: Mark, end: Mark) -> float:
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    start, end = cast("tuple[torch.cuda.Event, torch.cuda.Event]", (start, end))
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def flops_per_sample(model: nn.Module, shape: tuple[int, ...]) -> float | None:
    """Return the floating-point operations of a training step per sample, or None if they cannot be counted.

    `shape` is channels, height and width of a sample. The count uses a copy of the model on the meta device.
    """
    from torch.utils.flop_counter import FlopCounterMode

    formulas = {torch.ops.aten.convolution_backward: _convolution_backward_flops}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    meta_model = on_meta_device(model).train()
    try:
        with counter:
            # Two samples, because batch statistics need more than one value per channel.
            meta_model(torch.empty((2, *shape), device="meta")).sum().backward()
    except RuntimeError:
        # The model depends on values, which meta tensors do not have.
        return None
    return float(counter.get_total_flops()) / 2


def _convolution_backward_flops(
    gradient: Sequence[int], images: Sequence[int], weight: Sequence[int], *rest: object, **_named: object
) -> int:
    """Return the operations of the requested gradients (of images, of weights). Each costs as much as the convolution.

    This replaces torch's own count, which ignores groups. `rest` is bias, stride, padding, dilation, transposed, output
    padding, groups and the requested gradients.
    """
    transposed, wanted = rest[4], rest[7]
    assert isinstance(wanted, Sequence)
    places = (images if transposed else gradient)[2:]
    return 2 * gradient[0] * math.prod(places) * math.prod(weight) * sum(map(bool, wanted[:2]))


def peak_flops(device: torch.device, *, sixteen_bits: bool) -> float | None:
    """Return the peak operations a second of this device, or None if it is not known, as for a CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = next((peak for part, peak in PEAK_TERAFLOPS.items() if re.search(rf"\b{part}\b", name)), None)
    return found and found[0 if sixteen_bits else 1] * 1e12
