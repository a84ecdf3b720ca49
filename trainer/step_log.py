"""Log of a run's steps: loss, rates and times, reported once the device has computed them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from trainer.components import Components
from trainer.config import DigitsConfig, ImagenetConfig
from trainer.efficiency import Efficiency
from trainer.report.metrics import LazyMeter, Meter, RateClock, Reporter
from trainer.report.step_clock import StepClock
from trainer.runtime import Runtime
from trainer.watchdog import Watchdog


class StepLog:
    """Count and time steps. Only `emit` waits for the device."""

    def __init__(
        self,
        config: DigitsConfig | ImagenetConfig,
        components: Components,
        runtime: Runtime,
        report: Reporter,
        watchdog: Watchdog,
    ) -> None:
        self._runtime, self._report, self._watchdog, self._state = runtime, report, watchdog, components.state
        self.meter = (LazyMeter if runtime.device.type == "xla" else Meter)(runtime.device)
        self.clock = RateClock()
        self.steps = StepClock(components.state.model, runtime.device, world=runtime.world)
        self.efficiency = Efficiency(config, components.data, components.state, self.steps, runtime.device)
        self._is_finite = True
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()

    def record(self, number: int, steps: int) -> None:
        """Queue a line about the steps since the last call. Step `number` of the epoch's `steps` is done."""
        global_step, epoch, counts = self._state.step, self._state.sampler.epoch + 1, self._runtime.counts()
        sums, times = self.meter.sums(), self.steps.take()
        seconds, global_rate = self.clock.lap()
        self._watchdog.worked(times.steps, times.own)

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
            self._is_finite = self._is_finite and math.isfinite(loss)

        self._pending.append((global_step + self._runtime.metrics_lag, line))

    def emit(self, up_to: float = math.inf) -> None:
        """Report the queued lines up to a step. This is the only call in an epoch that waits for the device."""
        while self._pending and self._pending[0][0] <= up_to:
            self._pending.popleft()[1]()

    @property
    def is_finite(self) -> bool:
        """True if no reported loss was NaN or infinite."""
        return self._is_finite

    def flush(self) -> None:
        """Report all queued lines and check every loss so far."""
        self.emit()
        self._is_finite = self._is_finite and self.meter.is_finite()
