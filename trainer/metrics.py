"""What a run says: lines for people on standard output, JSON lines and TensorBoard events for tools."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import IO, TYPE_CHECKING

import torch

from trainer.runtime.base import Runtime
from trainer.storage import Folder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Value = str | int | float | tuple[int, int]
"""What can be said: a tuple (k, n) reads k/n."""
DECIMALS = {"loss": 4, "accuracy": 2, "test_accuracy": 2, "best_accuracy": 2, "rate": 1, "global_rate": 1, "seconds": 1}
SCALARS = ("loss", "accuracy", "rate", "global_rate")
"""What goes to TensorBoard."""


class Meter:
    """Adds up loss and accuracy on the device; nothing waits for the device until the sums are asked for."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count a batch: the sum of its losses and how many of its samples the model gets right."""
        self._sums[0] += loss_sum.detach()
        self._sums[1] += (logits.detach().argmax(dim=1) == labels).sum()
        self._sums[2] += len(labels)

    def is_finite(self) -> bool:
        """Whether no loss since the last take was NaN or infinite; waits for the device."""
        return bool(self._sums[0].isfinite())

    def take(self, runtime: Runtime | None = None) -> tuple[float, float, int]:
        """Mean loss, accuracy in percent and number of samples since the last call; of all ranks, given a runtime."""
        sums = runtime.sum(self._sums) if runtime else self._sums
        loss, right, count = sums.tolist()
        self._sums.zero_()
        return loss / max(count, 1), 100 * right / max(count, 1), int(count)


class RateClock:
    """Samples a second: of this rank since it was last asked, of all ranks since the start."""

    def __init__(self) -> None:
        self.samples = 0
        self.start()

    def start(self) -> None:
        """Begin to measure."""
        self._started = self._asked = time.monotonic()

    def count(self, samples: int) -> None:
        """Count samples of all ranks together."""
        self.samples += samples

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def rates(self, samples: int) -> tuple[float, float]:
        """This rank's rate, it having taken `samples` since the last call, and the global rate."""
        now = time.monotonic()
        since, self._asked = now - self._asked, now
        return samples / max(since, 1e-9), self.samples / max(now - self._started, 1e-9)


class Reporter:
    """Says what happens on one rank."""

    def __init__(self, runtime: Runtime, folder: Folder | None) -> None:
        self._identity: dict[str, Value] = {"rank": (runtime.rank, runtime.world), "host": socket.gethostname()}
        self._folder = folder
        self._lines: IO[str] | None = folder.child("metrics").append(f"rank-{runtime.rank}.jsonl") if folder else None
        self._writes_tensorboard = folder is not None and runtime.rank == 0
        self._tensorboard: SummaryWriter | None = None

    def event(self, name: str, *, global_step: int | None = None, **values: Value) -> None:
        """Say an event; its scalars go to TensorBoard where it has a global step."""
        values = {**values, **self._identity}
        now = time.time()
        words = [f"{key}={_text(key, value)}" for key, value in values.items()]
        # One write a line: ranks that share an output must not break each other's lines.
        sys.stdout.write(" ".join([name, *words, time.strftime("time=%H:%M:%S", time.localtime(now))]) + "\n")
        sys.stdout.flush()
        if self._lines:
            numbers = {"global_step": global_step} if global_step is not None else {}
            json.dump({"event": name, "time": round(now, 3), **_numbers(values), **numbers}, self._lines)
            self._lines.write("\n")
            self._lines.flush()
        if global_step is not None and self._writes_tensorboard:
            writer = self._tensorboard = self._tensorboard or self._open_tensorboard()
            for key in SCALARS:
                if isinstance(value := values.get(key), float):
                    writer.add_scalar(f"{name}/{key}", value, global_step)

    def close(self) -> None:
        """Write out what is still buffered."""
        if self._tensorboard:
            self._tensorboard.close()
        if self._lines:
            self._lines.close()

    def _open_tensorboard(self) -> SummaryWriter:
        # Imported here, at the first event that has scalars, to keep it out of the way to the first step.
        from torch.utils.tensorboard import SummaryWriter

        assert self._folder is not None
        return SummaryWriter(self._folder.child("tensorboard").url.removeprefix("file://"), flush_secs=10)


def node_name() -> str:
    """Name of the machine: the node that a cluster says it is, else the host."""
    return os.environ.get("TRAINYARD_NODE") or socket.gethostname()


def _text(key: str, value: Value) -> str:
    if isinstance(value, tuple):
        return f"{value[0]}/{value[1]}"
    return f"{value:.{DECIMALS.get(key, 4)}f}" if isinstance(value, float) else str(value)


def _numbers(values: dict[str, Value]) -> dict[str, str | int | float]:
    """A tuple as two numbers: step=(3, 10) as step 3 of steps 10."""
    flat: dict[str, str | int | float] = {}
    for key, value in values.items():
        if isinstance(value, tuple):
            flat[key], flat[key + "s"] = value
        else:
            flat[key] = round(value, 6) if isinstance(value, float) else value
    return flat
