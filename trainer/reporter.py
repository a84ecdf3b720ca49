"""Report a run's events: print them, and write them to sinks (JSON, TensorBoard, W&B) in the background."""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from trainer.exit_codes import StorageError
from trainer.rules import invalid_setting
from trainer.storage import Folder, MissingFileError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from trainer.tasks import Gallery

FLUSH_SECONDS = 1.0
"""Maximum seconds until other processes can read an event on a disk."""
PART_SECONDS = 30.0
"""Seconds between two writes to a bucket. Each write is a new object, because object stores cannot append."""
CLOSE_SECONDS = 20.0
"""Maximum seconds that a run waits for its writers at its end."""
PREEMPTED_CLOSE_SECONDS = 5.0
"""Maximum seconds that a preempted run waits for its writers. On a spot VM, GKE gives pods 15 s in total."""
IDENTIFIERS = frozenset({"epoch", "epochs", "step", "steps", "rank", "ranks"})
"""Numbers that identify an event and are not measurements."""
Value = str | int | float | tuple[int, int]
"""A reported value. A tuple (k, n) is printed as k/n."""
DECIMALS = {
    **dict.fromkeys(("accuracy", "test_accuracy", "best_accuracy", "top5"), 2),
    **dict.fromkeys(("rate", "global_rate", "seconds", "data_wait", "all_reduce", "goodput", "mfu", "slower"), 1),
    **{"memory_mib": 0, "teraflops": 3},
}
"""Number of printed decimals; 4 for other keys."""


class Reporter:
    """Reporter of one rank's events. It prints them at once, and threads write them to the sinks."""

    def __init__(self, rank: int, world: int, folder: Folder | None, *, job: str = "", wandb: str = "off") -> None:
        self._identity: dict[str, Value] = {"rank": (rank, world), "host": socket.gethostname()}
        self._order = threading.Lock()
        sinks: list[Sink] = []
        if folder:
            metrics, name = folder.child("metrics"), f"rank-{rank}"
            sinks.append(JsonFile(metrics, f"{name}.jsonl") if metrics.is_local else JsonParts(metrics, name))
            if rank == 0:
                sinks.append(TensorBoard(folder.child("tensorboard")))
            if wandb != "off":
                if find_spec("wandb") is None:
                    raise invalid_setting("wandb", wandb, "'off' without the package wandb", "install the package")
                sinks.append(WeightsAndBiases(folder.child("wandb"), job=job, rank=rank, mode=wandb))
        # One thread per sink, because TensorBoard takes seconds to load, and W&B may wait for the network.
        self._writers = [Writer(sink) for sink in sinks]

    def event(
        self, name: str, gallery: Gallery | None = None, /, *, global_step: int | None = None, **values: Value
    ) -> None:
        """Report an event. If it has a global step over all epochs, its numbers are points of curves.

        Raises StorageError if an earlier event could not be written.
        """
        values = {**values, **self._identity}
        now = time.time()
        position: dict[str, Value] = {} if global_step is None else {"global_step": global_step}
        fields = [f"{key}={_text(key, value)}" for key, value in (values | position).items()]
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
        """Wait until the JSON sink has received all events so far, for up to PREEMPTED_CLOSE_SECONDS.

        On a disk, the events are then in the file. A bucket may receive them later.
        """
        for writer in self._writers[:1]:
            writer.sync()

    def close(self) -> None:
        """Write the remaining events for up to CLOSE_SECONDS. Raises StorageError if a write failed."""
        self.close_within(CLOSE_SECONDS)
        for writer in self._writers:
            writer.check()

    def close_within(self, seconds: float) -> None:
        """Write the remaining events for up to `seconds`. Raises no error, so that an earlier error stays visible."""
        until = time.monotonic() + seconds
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            writer.wait(until)


def warn(text: str) -> None:
    """Print a warning."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def node_name() -> str:
    """Return the name of the cluster's node that this pod runs on; outside of a cluster, the name of this machine."""
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


@dataclass(frozen=True, kw_only=True)
class Record:
    """An event."""

    name: str
    time: float
    """Seconds since 1970."""
    values: dict[str, str | int | float]
    global_step: int | None
    """Optimizer steps so far, over all restarts; None for an event without curves."""
    gallery: Gallery | None = None
    """Images for sinks that can display them."""

    def line(self) -> str:
        """Return the event as a line of JSON. NaN and infinity become null."""
        step = {} if self.global_step is None else {"global_step": self.global_step}
        values = {
            key: value if isinstance(value, str) or math.isfinite(value) else None for key, value in self.values.items()
        }
        content = {"event": self.name, "time": round(self.time, 3), **values, **step}
        return json.dumps(content, allow_nan=False) + "\n"

    def curves(self) -> Iterator[tuple[str, float]]:
        """Yield the points that the event adds to curves."""
        if self.global_step is not None:
            for key, value in self.values.items():
                if not isinstance(value, str) and key not in IDENTIFIERS:
                    yield f"{self.name}/{key}", float(value)


class Sink:
    """Base class of the sinks, to which events are written. Only the writer's thread calls a sink's methods."""

    def write(self, record: Record) -> None:
        """Add an event."""

    def flush(self) -> None:
        """Make the added events readable for other processes, in sinks that do not do that by themselves."""

    def close(self) -> None:
        """Write all remaining events. Nothing uses the sink afterwards."""


class Writer:
    """A queue to which training adds events, and a thread that passes them to a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._queue: queue.SimpleQueue[Record | threading.Event | None] = queue.SimpleQueue()
        self._error: StorageError | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        self._queue.put(record)

    def check(self) -> None:
        """Raise StorageError if an event could not be written."""
        if self._error:
            raise self._error

    def sync(self) -> None:
        """Wait until the sink has received all events so far, for up to PREEMPTED_CLOSE_SECONDS."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(PREEMPTED_CLOSE_SECONDS)

    def end(self) -> None:
        """End the thread after the queued events."""
        self._queue.put(None)

    def wait(self, until: float) -> None:
        """Wait until all queued events are written, at most until `until` on the monotonic clock."""
        self._thread.join(max(0, until - time.monotonic()))
        if self._thread.is_alive():
            warn("some events are lost: the storage does not answer")

    def _run(self) -> None:
        try:
            self._write()
        except StorageError as error:
            self._error = error
            with suppress(StorageError, OSError):
                self._sink.close()

    def _write(self) -> None:
        """Write events until the end, and flush when the oldest unflushed event is old enough."""
        due = math.inf
        while True:
            wait = due - time.monotonic()
            if wait <= 0:
                self._sink.flush()
                due = math.inf
                continue
            try:
                record = self._queue.get(timeout=None if wait == math.inf else wait)
            except queue.Empty:
                continue
            if record is None:
                break
            if isinstance(record, threading.Event):
                record.set()
                continue
            self._sink.write(record)
            due = min(due, time.monotonic() + FLUSH_SECONDS)
        self._sink.close()


class JsonFile(Sink):
    """JSON lines appended to a file on a disk."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._url = f"{folder.url}/{name}"
        self._file: IO[str] = folder.append(name)
        if _is_cut(Path(folder.path, name)):
            with _storage_errors(self._url):
                self._file.write("\n")

    def write(self, record: Record) -> None:
        with _storage_errors(self._url):
            self._file.write(record.line())
            self._file.flush()

    def close(self) -> None:
        with _storage_errors(self._url):
            self._file.close()


def _is_cut(file: Path) -> bool:
    """Return True if the previous run stopped in the middle of a line."""
    try:
        with file.open("rb") as lines:
            lines.seek(-1, os.SEEK_END)
            return lines.read() != b"\n"
    except OSError:  # missing, empty, or not writable, which the first write will report
        return False


@contextmanager
def _storage_errors(url: str) -> Iterator[None]:
    """Turn a disk's error into StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{url} cannot be written: {error.strerror or error}") from None


class JsonParts(Sink):
    """JSON lines in a bucket: one object per PART_SECONDS, named after the time of its first event."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder.child(name)
        self._lines: list[str] = []
        self._first = 0.0

    def write(self, record: Record) -> None:
        if not self._lines:
            self._first = record.time
        self._lines.append(record.line())
        if record.time - self._first >= PART_SECONDS:
            self.close()

    def flush(self) -> None:
        """Write a part if the oldest event is old enough."""
        if self._lines and time.time() - self._first >= PART_SECONDS:
            self.close()

    def close(self) -> None:
        if self._lines:
            self._folder.write(f"{self._first:.3f}.jsonl", "".join(self._lines).encode())
            self._lines.clear()


class TensorBoard(Sink):
    """TensorBoard's event files. For a bucket, this sink writes them locally and copies them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._path = ""
        self._copied = time.monotonic()

    def write(self, record: Record) -> None:
        with _storage_errors(self._folder.url):
            for name, value in record.curves():
                self._open(record.global_step).add_scalar(name, value, record.global_step)

    def flush(self) -> None:
        if self._writer:
            with _storage_errors(self._folder.url):
                self._writer.flush()
            if not self._folder.is_local and time.monotonic() - self._copied >= PART_SECONDS:
                self._copy()

    def close(self) -> None:
        if self._writer:
            with _storage_errors(self._folder.url):
                self._writer.close()
            if not self._folder.is_local:
                self._copy()
                shutil.rmtree(self._path)

    def _open(self, step: int | None) -> SummaryWriter:
        """Return TensorBoard's writer. Its files make TensorBoard hide an earlier run's points from `step` on."""
        if self._writer is None:
            # Imported at the first event with a curve, so that the import does not delay the first step.
            from torch.utils.tensorboard import SummaryWriter

            self._path = self._folder.path if self._folder.is_local else tempfile.mkdtemp(prefix="tensorboard-")
            self._writer = SummaryWriter(self._path, purge_step=step, flush_secs=10)
        return self._writer

    def _copy(self) -> None:
        self._copied = time.monotonic()
        for path in sorted(Path(self._path).iterdir()):
            self._folder.upload(str(path), path.name)


class WeightsAndBiases(Sink):
    """A rank's run in Weights & Biases, in a group with the job's name. A resumed job continues the run.

    Without a network or a valid key, this sink writes a folder for a later `wandb sync`.
    """

    def __init__(self, folder: Folder, *, job: str, rank: int, mode: str) -> None:
        self._folder, self._job, self._rank = folder, job, rank
        self._mode = mode if mode != "auto" else ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        self._run: Any = None
        self._path = self._id = ""

    def write(self, record: Record) -> None:
        points: dict[str, Any] = dict(record.curves())
        if record.name == "resume":
            with suppress(MissingFileError):
                self._id = self._folder.read(f"id-{self._rank}").decode()
        if points:
            self._open().log({**points, **_images(record)}, step=record.global_step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            if not self._folder.is_local:
                for path in sorted(Path(self._path).rglob("*")):
                    if path.is_file() and not path.is_symlink():
                        self._folder.upload(str(path), str(path.relative_to(self._path)))
                shutil.rmtree(self._path)

    def _open(self) -> Any:
        if self._run is None:
            # Imported in this thread, because the import takes seconds and training must not wait for it.
            import wandb

            self._path = self._folder.path if self._folder.is_local else tempfile.mkdtemp(prefix="wandb-")
            Path(self._path).mkdir(parents=True, exist_ok=True)
            name, resume = f"{self._job}-{self._rank}", "allow" if self._id else None
            if not self._id:
                self._id = uuid.uuid4().hex[:8]
                self._folder.write(f"id-{self._rank}", self._id.encode())
            options: Any = {"project": "trainyard", "group": self._job, "name": name, "dir": self._path, "id": self._id}
            options["settings"] = wandb.Settings(init_timeout=CLOSE_SECONDS / 2, silent=True, console="off")
            try:
                online: Any = {"mode": "online", "resume": resume} if self._mode == "online" else {"mode": "offline"}
                self._run = wandb.init(**online, **options)
            except (wandb.errors.CommError, wandb.errors.UsageError) as error:
                # A missing or wrong key raises one of these errors.
                warn(
                    f"W&B did not accept the run of this rank: {error}; the run is kept in {self._folder.url}; upload "
                    "it with `wandb sync`"
                )
                self._run = wandb.init(mode="offline", **options | {"id": uuid.uuid4().hex[:8]})
        return self._run


def _images(record: Record) -> dict[str, Any]:
    """Return the images of an event in W&B's types: samples and the confusion matrix."""
    if not (gallery := record.gallery):
        return {}
    import wandb

    samples = [wandb.Image(one.pixels, caption=f"{one.label}, predicted {one.predicted}") for one in gallery.samples]
    found: dict[str, Any] = {f"{record.name}/samples": samples}
    if (counts := gallery.confusion) is not None:
        rows = [[str(row), str(column), int(count)] for (row, column), count in np.ndenumerate(counts)]
        columns: list[str | int] = ["Actual", "Predicted", "nPredictions"]
        found[f"{record.name}/confusion"] = wandb.plot_table(
            "wandb/confusion_matrix/v1",
            wandb.Table(columns=columns, data=rows),
            {str(name): str(name) for name in columns},
        )
    return found
