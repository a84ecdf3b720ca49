"""Report a run: lines for people on standard output, JSON lines and TensorBoard events for tools."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from importlib.util import find_spec
from typing import Protocol

import torch

from trainer.exit_codes import ConfigurationError
from trainer.report.gallery import Gallery
from trainer.report.sinks import CLOSE_SECONDS, Record, Sink, TensorBoard, Writer, json_lines
from trainer.storage import Folder

CPU_BATCHES = 32
"""Number of batches that a Meter on a CPU counts together."""
Value = str | int | float | tuple[int, int]
"""A reported value. A tuple (k, n) is printed as k/n."""
DECIMALS = {
    "accuracy": 2,
    "test_accuracy": 2,
    "best_accuracy": 2,
    "top5": 2,
    "rate": 1,
    "global_rate": 1,
    "seconds": 1,
    "data_wait": 1,
    "all_reduce": 1,
    "memory_mib": 0,
    "goodput": 1,
    "teraflops": 3,
    "mfu": 1,
    "slower": 1,
}
"""Number of printed decimals; 4 for other keys."""


class Meter:
    """Sum up loss and accuracy on the device. Only reading the sums waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._right = torch.zeros((), dtype=torch.int64, device=device)
        self._count = 0
        self._taken = (0.0, 0.0, 0.0)
        self._held: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        # On a CPU small computations are much faster for many batches at once. On a GPU they cost nothing, and a CUDA
        # graph overwrites its last logits.
        self._max_held = CPU_BATCHES if device.type == "cpu" else 1

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch: the sum of its losses, and the number of samples that the model gets right.

        The tensors must not change afterwards.
        """
        self._held.append((loss_sum.detach(), logits.detach(), labels))
        if len(self._held) >= self._max_held:
            self._count_held()

    def _count_held(self) -> None:
        for loss_sum, logits, labels in self._concatenated():
            self._loss += loss_sum
            self._right += (logits.argmax(dim=1) == labels).sum()
            self._count += len(labels)
        self._held.clear()

    def _concatenated(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Concatenate the held batches."""
        if len(self._held) < 2:
            return self._held
        losses, logits, labels = zip(*self._held, strict=True)
        return [(torch.stack(losses).double().sum(), torch.cat(logits), torch.cat(labels))]

    def is_finite(self) -> bool:
        """Return True if no loss was NaN or infinite. Waits for the device."""
        return math.isfinite(self.sums().tolist()[0])

    def sums(self) -> torch.Tensor:
        """Return the sums so far for `take`, without waiting for the device."""
        self._count_held()
        return torch.stack([self._loss, self._right.double(), torch.full_like(self._loss, self._count)])

    def take(self, sums: torch.Tensor) -> tuple[float, float, int]:
        """Return mean loss, accuracy in percent and number of samples since the sums of the last call."""
        now = tuple(sums.tolist())
        loss, right, count = (after - before for after, before in zip(now, self._taken, strict=True))
        self._taken = now
        return loss / max(count, 1), 100 * right / max(count, 1), int(count)


class LazyMeter(Meter):
    """A Meter for devices where a step is one graph. All work is in `add`, so that every step has the same graph."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch. Its padding has labels below 0."""
        right = (logits.detach().argmax(dim=1) == labels).sum()
        found = torch.stack([loss_sum.detach().double(), right.double(), (labels >= 0).sum().double()])
        # Create a new tensor, so that earlier sums stay readable.
        self._sums = self._sums + found

    def sums(self) -> torch.Tensor:
        """Return the sums so far for `take`, without waiting for the device."""
        return self._sums


class RateClock:
    """Samples a second: of this rank since the last call, of all ranks since the start."""

    def __init__(self) -> None:
        self.samples = 0
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._started = self._asked = time.monotonic()

    def count(self, samples: int) -> None:
        """Add samples of all ranks together."""
        self.samples += samples

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def lap(self) -> tuple[float, float]:
        """Return the seconds since the last call, and the global rate."""
        now = time.monotonic()
        since, self._asked = now - self._asked, now
        return max(since, 1e-9), self.samples / max(now - self._started, 1e-9)


class Member(Protocol):
    """A rank of the group that trains together."""

    @property
    def rank(self) -> int:
        """Number of this rank."""

    @property
    def world(self) -> int:
        """Number of ranks."""


class Reporter:
    """Report events of one rank: print them at once and pass them to threads that write files."""

    def __init__(self, member: Member, folder: Folder | None, *, job: str = "", wandb: str = "off") -> None:
        self._identity: dict[str, Value] = {"rank": (member.rank, member.world), "host": socket.gethostname()}
        self._order = threading.Lock()
        self._writers: list[Writer] = []
        if folder:
            # One thread serves the other sinks, but W&B may wait for the network.
            sinks: list[Sink] = [json_lines(folder.child("metrics"), f"rank-{member.rank}")]
            if member.rank == 0:
                sinks.append(TensorBoard(folder.child("tensorboard")))
            self._writers.append(Writer(sinks))
            if wandb != "off":
                if find_spec("wandb") is None:
                    raise ConfigurationError(f"wandb is {wandb!r} and the package wandb is not installed: install it")
                from trainer.report.wandb_run import WeightsAndBiases

                run = WeightsAndBiases(folder.child("wandb"), job=job, rank=member.rank, mode=wandb)
                self._writers.append(Writer([run]))

    def event(
        self, name: str, gallery: Gallery | None = None, /, *, global_step: int | None = None, **values: Value
    ) -> None:
        """Report an event. If it has a global step, its numbers are points of curves.

        Raises StorageError if an earlier event could not be written.
        """
        values = {**values, **self._identity}
        now = time.time()
        fields = [f"{key}={_text(key, value)}" for key, value in values.items()]
        record = Record(name=name, time=now, values=_numbers(values), global_step=global_step, gallery=gallery)
        with self._order:
            # Use one write per line, so that ranks with a shared output do not break each other's lines.
            sys.stdout.write(" ".join([name, *fields, time.strftime("time=%H:%M:%S", time.localtime(now))]) + "\n")
            sys.stdout.flush()
            for writer in self._writers:
                writer.put(record)
        for writer in self._writers:
            writer.check()

    def close(self) -> None:
        """Write all remaining events. Raises StorageError if that fails."""
        self.close_within(CLOSE_SECONDS)
        for writer in self._writers:
            writer.check()

    def close_within(self, seconds: float) -> None:
        """Write remaining events for up to `seconds` after an error, without raising another one."""
        until = time.monotonic() + seconds
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            writer.wait(until)


def node_name() -> str:
    """Return the name of the cluster's node, else of the host."""
    return os.environ.get("TRAINYARD_NODE") or socket.gethostname()


def _text(key: str, value: Value) -> str:
    if isinstance(value, tuple):
        return f"{value[0]}/{value[1]}"
    return f"{value:.{DECIMALS.get(key, 4)}f}" if isinstance(value, float) else str(value)


def _numbers(values: dict[str, Value]) -> dict[str, str | int | float]:
    """Split a tuple into two numbers: step=(3, 10) becomes step=3 and steps=10."""
    flat: dict[str, str | int | float] = {}
    for key, value in values.items():
        if isinstance(value, tuple):
            flat[key], flat[key + "s"] = value
        else:
            flat[key] = round(value, 6) if isinstance(value, float) else value
    return flat
