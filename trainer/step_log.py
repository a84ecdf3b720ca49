"""Log of a run's steps: loss, rates and times, reported once the device has computed them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from trainer.components import Parts
from trainer.config import DigitsConfig, ImagenetConfig
from trainer.efficiency import Efficiency
from trainer.report.metrics import LazyMeter, Meter, RateClock, Reporter
from trainer.report.step_clock import StepClock
from trainer.runtime import Runtime
from trainer.watchdog import Watch


class StepLog:
    """Count and time steps. Only `emit` waits for the device."""

    def __init__(
        self,
        config: DigitsConfig | ImagenetConfig,
        parts: Parts,
        runtime: Runtime,
        report: Reporter,
        watch: Watch,
    ) -> None:
        self._runtime, self._report, self._watch, self._state = runtime, report, watch, parts.state
        self.meter = (LazyMeter if runtime.device.type == "xla" else Meter)(runtime.device)
        self.clock = RateClock()
        self.steps = StepClock(parts.state.model, runtime.device, world=runtime.world)
        self.efficiency = Efficiency(config, parts.data, parts.state, self.steps, runtime.device)
        self._finite = True
        self._unsaid: deque[tuple[int, Callable[[], None]]] = deque()

    def note(self, number: int, steps: int) -> None:
        """Queue a line about the steps since the last call. Step `number` of the epoch's `steps` is done."""
        global_step, epoch, counts = self._state.step, self._state.sampler.epoch + 1, self._runtime.counts()
        sums, times = self.meter.sums(), self.steps.take()
        seconds, global_rate = self.clock.lap()
        self._watch.worked(times.steps, times.own)

        def line() -> None:
            loss, accuracy, samples = self.meter.take(sums)
            self._report.event(
                "train",
                global_step=global_step,
                epoch=epoch,
                step=(number, steps),
                loss=loss,
                accuracy=accuracy,
                rate=samples / seconds,
                global_rate=global_rate,
                **self.efficiency.shares(times, samples / seconds),
                **counts,
            )
            self._finite = self._finite and math.isfinite(loss)

        self._unsaid.append((global_step + self._runtime.metrics_lag, line))

    def say(self, up_to: float = math.inf) -> None:
        """Report the queued lines up to a step. This is the only call in an epoch that waits for the device."""
        while self._unsaid and self._unsaid[0][0] <= up_to:
            self._unsaid.popleft()[1]()

    @property
    def is_finite(self) -> bool:
        """True if no reported loss was NaN or infinite."""
        return self._finite

    def settle(self) -> None:
        """Report all queued lines and check every loss so far."""
        self.say()
        self._finite = self._finite and self.meter.is_finite()
