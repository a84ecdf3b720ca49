"""Report a run: lines and warnings for people, and events for the sinks of files."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from trainer.exit_codes import ConfigurationError
from trainer.sinks import CLOSE_SECONDS, JsonFile, JsonParts, Record, Sink, TensorBoard, WeightsAndBiases, Writer
from trainer.storage import Folder

if TYPE_CHECKING:
    from trainer.evaluation import Gallery

Value = str | int | float | tuple[int, int]
"""A reported value. A tuple (k, n) is printed as k/n."""
DECIMALS = {
    **dict.fromkeys(("accuracy", "test_accuracy", "best_accuracy", "top5"), 2),
    **dict.fromkeys(("rate", "global_rate", "seconds", "data_wait", "all_reduce", "goodput", "mfu", "slower"), 1),
    **{"memory_mib": 0, "teraflops": 3},
}
"""Number of printed decimals; 4 for other keys."""


class Process(Protocol):
    """A process of the job."""

    @property
    def rank(self) -> int:
        """Number of this rank."""

    @property
    def world(self) -> int:
        """Number of ranks."""


class Reporter:
    """Report events of one rank: print them at once and pass them to threads that write files."""

    def __init__(self, process: Process, folder: Folder | None, *, job: str = "", wandb: str = "off") -> None:
        self._identity: dict[str, Value] = {"rank": (process.rank, process.world), "host": socket.gethostname()}
        self._order = threading.Lock()
        sinks: list[Sink] = []
        if folder:
            metrics, name = folder.child("metrics"), f"rank-{process.rank}"
            sinks.append(JsonFile(metrics, f"{name}.jsonl") if metrics.is_local else JsonParts(metrics, name))
            if process.rank == 0:
                sinks.append(TensorBoard(folder.child("tensorboard")))
            if wandb != "off":
                if find_spec("wandb") is None:
                    raise ConfigurationError(f"wandb is {wandb!r} and the package wandb is not installed: install it")
                sinks.append(WeightsAndBiases(folder.child("wandb"), job=job, rank=process.rank, mode=wandb))
        # A thread each, because TensorBoard takes seconds to load, and W&B may wait for the network.
        self._writers = [Writer(sink) for sink in sinks]

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

    def sync(self) -> None:
        """Wait until the lines of JSON so far are written."""
        for writer in self._writers[:1]:
            writer.sync()

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


def warn(text: str) -> None:
    """Print a warning."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


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
