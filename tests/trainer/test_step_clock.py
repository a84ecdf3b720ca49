"""Time of the steps, on the CPU and on an asynchronous device."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from trainer.report.step_clock import StepClock

WAIT, WORK = 0.02, 0.05


def a_step(clock: StepClock) -> None:
    """Run a step that waits for its data, and then works."""
    clock.begin()
    time.sleep(WAIT)
    clock.data_ready()
    time.sleep(WORK)
    clock.gradients_ready()
    clock.end()


def test_step_time_is_split_into_data_wait_and_useful_time() -> None:
    clock = StepClock(nn.Linear(1, 1), torch.device("cpu"), world=1)
    for _ in range(2):
        a_step(clock)
    times = clock.take()
    assert times.steps == 2
    assert 2 * WAIT <= times.data < times.total - 2 * WORK + 0.001
    assert times.all_reduce == 0
    assert clock.useful == pytest.approx(times.total - times.data)
    assert clock.take().steps == 0


class Queue:
    """A device that runs its work in order while the host continues, in seconds."""

    def __init__(self) -> None:
        self.host = self.done = 0.0

    def work(self, seconds: float) -> None:
        """Add work."""
        self.done = max(self.done, self.host) + seconds


def test_device_with_work_left_does_not_wait_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()

    class Event:
        """A recorded event of the queue, used instead of torch.cuda.Event."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            """Record the time at which the queue reaches this point."""
            self.at = max(queue.done, queue.host)

        def synchronize(self) -> None:
            """Make the host wait for the event."""
            queue.host = max(queue.host, self.at)

        def elapsed_time(self, end: Event) -> float:
            """Return milliseconds."""
            return 1000 * (end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = StepClock(nn.Linear(1, 1), torch.device("cuda"), world=1)
    for _ in range(10):
        clock.begin()
        queue.host += WAIT
        clock.data_ready()
        queue.work(WORK)
        clock.gradients_ready()
        clock.end()
    times = clock.take()
    assert times.data == pytest.approx(WAIT), "only at the first step had the device nothing to do"
    assert times.total == pytest.approx(WAIT + 10 * WORK)
    assert queue.host == pytest.approx(times.total), "the numbers were read once the device was done"
