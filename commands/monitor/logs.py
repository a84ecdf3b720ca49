"""Logs of a job's hosts: a follower of many pods, and a parser of the trainer's events and of torchrun's report.

The follower uses one thread for each pod and puts the lines into one queue. After a reconnection, it skips lines whose
timestamps show that it has already read them.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType

from commands.monitor.cluster import Cluster, Unreachable
from commands.monitor.pod_state import PodState
from workloads.kinds import KINDS

EVENTS = frozenset({"start", "train", "test", "checkpoint", "resume", "done", "restart", "straggler"})
"""Events that the commands read: the first words of the trainer's lines, and the launcher's `restart`."""

_PREFIX = re.compile("|".join(kind.line_prefix for kind in KINDS.values() if kind.line_prefix) or "(?!)")
"""Text that launchers print before each line of a training process."""
_PAIR = re.compile(r"([A-Za-z_][\w.]*)=(\S*)")
_REPORT = re.compile(r"\s*(rank|exitcode)\s*: (-?\d+)\b")
_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b|^Traceback |\b(?:error|fatal|failed|refused|diverged|killed)\b",
    re.IGNORECASE,
)
RETRY_SECONDS = 1.0
"""Seconds before a reader requests a log again."""
STOP_SECONDS = 2.0
"""Maximum seconds that all readers together may take to end."""
OVERLAP_SECONDS = 30
"""Seconds of the known log that a reader requests again, because machines' clocks differ."""


@dataclass(frozen=True)
class Event:
    """Event that the trainer or the launcher printed."""

    name: str
    """Name of the event: a word of EVENTS."""
    fields: dict[str, str]
    """Values of the event, as printed."""

    @property
    def rank(self) -> int | None:
        """Rank that reports the event (`rank=3/8`); None if the line has no rank."""
        first = self.fields.get("rank", "").partition("/")[0]
        return int(first) if first.isdigit() else None

    @property
    def global_step(self) -> tuple[int, int] | None:
        """Step over all epochs, and the number of steps (0 if unknown).

        The field is `global_step`, or `step` if the line has no `global_step`. None if the line has neither.
        """
        step, _, steps = (self.fields.get("global_step") or self.fields.get("step", "")).partition("/")
        return (int(step), int(steps) if steps.isdecimal() else 0) if step.isdecimal() else None

    @property
    def epoch_step(self) -> tuple[int, int] | None:
        """Step within the epoch, and the number of its steps (0 if unknown).

        None unless the line has `global_step`, `step` and `epoch`.
        """
        is_within = self.fields.keys() >= {"global_step", "step", "epoch"}
        step, _, steps = self.fields["step"].partition("/") if is_within else ("", "", "")
        return (int(step), int(steps) if steps.isdecimal() else 0) if step.isdecimal() else None

    @property
    def place(self) -> str:
        """Step and epoch as text; empty if the line has neither."""
        step, epoch = self.fields.get("step") or self.fields.get("global_step", ""), self.fields.get("epoch", "")
        if not epoch:
            return step
        return f"{step} of epoch {epoch}" if self.epoch_step else ", ".join(filter(None, (step, f"epoch {epoch}")))


def parse_event(line: str) -> Event | None:
    """Return the event in a line; None for other text."""
    prefix = _PREFIX.match(line)
    name, _, rest = line[prefix.end() if prefix else 0 :].partition(" ")
    if name not in EVENTS:
        return None
    fields = dict(_PAIR.findall(rest))
    return Event(name, fields) if fields else None


def looks_like_an_error(line: str) -> bool:
    """Return True if the line looks like an error and is not an event."""
    return parse_event(line) is None and bool(_ERROR.search(line))


def exit_codes(lines: Iterable[str]) -> dict[int, int]:
    """Return rank -> exit code, from torchrun's failure report (torch/distributed/elastic/multiprocessing/errors).

    torchrun itself exits with 1 for any code of a worker. A negative code is the signal that ended the worker.
    """
    found: dict[int, int] = {}
    rank: int | None = None
    for line in lines:
        match = _REPORT.match(line)
        if match is None:
            continue
        if match[1] == "rank":
            rank = int(match[2])
        elif rank is not None:
            found[rank] = int(match[2])
            rank = None
    return found


def before_report(lines: list[str]) -> list[str]:
    """Return the lines before torchrun's failure report. If there are none, return all lines."""
    first = next((number for number, line in enumerate(lines) if "failed (exitcode:" in line), None)
    return lines[:first] if first else lines


@dataclass
class Progress:
    """Progress of one host, from its output so far."""

    latest: dict[str, Event] = field(default_factory=dict)
    """Last event of each name, from the host's lowest rank that reports it."""

    def read(self, line: str) -> Event | None:
        """Parse one more line. Return its event."""
        event = parse_event(line)
        if event is not None:
            known = self.latest.get(event.name)
            if known is None or (event.rank or 0) <= (known.rank or 0):
                self.latest[event.name] = event
        return event

    def value(self, key: str, *names: str) -> str:
        """Return the last value of `key` from the first event in `names` that has it; empty if none has."""
        for name in names:
            event = self.latest.get(name)
            if event is not None and key in event.fields:
                return event.fields[key]
        return ""


@dataclass
class _Stream:
    """Reader of one pod's log."""

    thread: threading.Thread | None = None
    """Thread that reads the log or has read it."""
    end: Callable[[], None] | None = None
    """Function that ends the current request."""
    last: str = ""
    """Time of the last line read (RFC 3339, nanoseconds)."""
    is_over: threading.Event = field(default_factory=threading.Event)
    """Set when the pod has ended or is gone. The next end of the stream is then the end of the log."""


class LogStreams:
    """Logs of all pods that were passed to `update`, as one stream of lines."""

    def __init__(self, cluster: Cluster, after: Mapping[str, str] = MappingProxyType({})) -> None:
        """Read all lines of each pod. If `after` has a time (RFC 3339) for a pod's uid, read only the later lines."""
        self._cluster, self._after = cluster, after
        self._lines: queue.SimpleQueue[tuple[PodState, str]] = queue.SimpleQueue()
        self._streams: dict[str, _Stream] = {}
        self._stopped = threading.Event()

    def update(self, pods: list[PodState]) -> None:
        """Start reading the logs of new pods, and record which pods have ended. `pods` are all existing pods."""
        existing = {pod.uid: pod for pod in pods}
        for uid, stream in self._streams.items():
            pod = existing.get(uid)
            if pod is None or pod.is_over:
                stream.is_over.set()
        for pod in pods:
            if pod.has_log and pod.uid not in self._streams:
                stream = self._streams[pod.uid] = _Stream(last=self._after.get(pod.uid, ""))
                if pod.is_over:
                    stream.is_over.set()
                stream.thread = threading.Thread(target=self._read, args=(pod, stream), name=pod.name, daemon=True)
                stream.thread.start()

    def next_line(self, timeout: float) -> tuple[PodState, str] | None:
        """Return the next line and its pod; None if none comes in `timeout` seconds."""
        try:
            return self._lines.get(timeout=timeout)
        except queue.Empty:
            return None

    def are_over(self) -> bool:
        """Return True if all readers have ended and no line is left."""
        alive = any(stream.thread is not None and stream.thread.is_alive() for stream in self._streams.values())
        return not alive and self._lines.empty()

    def stop(self) -> None:
        """End all reading."""
        self._stopped.set()
        for stream in self._streams.values():
            if stream.end is not None:
                stream.end()
        deadline = time.monotonic() + STOP_SECONDS
        for stream in self._streams.values():
            if stream.thread is not None:
                stream.thread.join(max(0.0, deadline - time.monotonic()))

    def _opened(self, stream: _Stream, end: Callable[[], None]) -> None:
        stream.end = end
        if self._stopped.is_set():
            end()

    def _read(self, pod: PodState, stream: _Stream) -> None:
        while not self._stopped.is_set():
            was_over, answered = stream.is_over.is_set(), True
            try:
                for stamp, text in self._cluster.follow_log(
                    pod, since_seconds(stream.last), partial(self._opened, stream)
                ):
                    if self._stopped.is_set():
                        return
                    if stamp > stream.last:
                        stream.last = stamp
                        self._lines.put((pod, text))
            except Unreachable:
                # Only try again here: the loop that lists the pods reports an unreachable cluster.
                answered = False
            if was_over and answered:
                return
            # If the pod has just ended, read its last lines without a pause.
            if not (stream.is_over.is_set() and answered):
                self._stopped.wait(RETRY_SECONDS)


def since_seconds(last: str) -> int | None:
    """Return the seconds of log to request, counted back from now; None for the whole log.

    `last` is the time of the last known line; empty for none.
    """
    if not last:
        return None
    then = datetime.fromisoformat(last[:19] + "+00:00")
    return max(1, int((datetime.now(UTC) - then).total_seconds())) + OVERLAP_SECONDS
