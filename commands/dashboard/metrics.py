"""Metrics of a job for the dashboard: curves of limited size, and readers of growing files."""

from __future__ import annotations

import json
import math
import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

COLUMNS = 300
"""Maximum number of columns of a curve. Each keeps its smallest and largest value, so that the curve shows all spikes.
"""
CHUNK_BYTES = 1 << 18
"""Number of bytes to read from a file at once."""
TAIL_BYTES = 4096
"""Bytes at the end of a rank's file in which the dashboard looks for the last `train` event."""
READ_SECONDS = 0.4
"""Maximum seconds that one refresh spends on the lines of one job. The next refresh continues."""
RANKS_PER_REFRESH = 1024
"""Maximum number of ranks' files that one refresh reads."""
RANK_KEYS = ("global_step", "rate", "all_reduce")
"""Keys to keep of the last `train` event of each rank except rank 0. The other keys would cost memory in large jobs."""
_value = itemgetter(1)

Event = dict[str, Any]
Point = tuple[int, float]


class Curve:
    """Points of a curve in columns, each for the same number of steps. Steps grow, except after a restart."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self._columns, self._width = columns, 1
        self._kept: dict[int, tuple[Point, Point]] = {}
        self._last = -1

    def add(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add points, sorted by step. If their first step is not new, drop the columns with this or later steps."""
        if steps[0] <= self._last:
            # A restart repeats these steps.
            self._kept = {key: pair for key, pair in self._kept.items() if max(pair[0][0], pair[1][0]) < steps[0]}
        self._last = steps[-1]
        while self._last // self._width - next(iter(self._kept), steps[0] // self._width) >= self._columns:
            self._widen()
        first = 0
        while first < len(steps):
            key = steps[first] // self._width
            last = bisect_left(steps, (key + 1) * self._width, first)
            inside = values[first:last]
            least, most = min(inside), max(inside)
            self._merge(key, (steps[first + inside.index(least)], least), (steps[first + inside.index(most)], most))
            first = last

    def points(self) -> list[Point]:
        """Return the smallest and the largest value of each column with their steps, sorted by step."""
        return [point for least, most in self._kept.values() for point in sorted({least, most})]

    def _merge(self, key: int, least: Point, most: Point) -> None:
        known = self._kept.get(key)
        if known is not None:
            least, most = min(known[0], least, key=_value), max(known[1], most, key=_value)
        self._kept[key] = (least, most)

    def _widen(self) -> None:
        self._width *= 2
        before, self._kept = self._kept, {}
        for key, (least, most) in before.items():
            self._merge(key // 2, least, most)


class Curves:
    """Curves of one job, by event and key, such as `train` and `loss`."""

    def __init__(self, wanted: Iterable[tuple[str, str]], columns: int = COLUMNS) -> None:
        self._curves = {each: Curve(columns) for each in wanted}
        self._names = {name for name, _ in self._curves}

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events in the order of the log."""
        by_name: dict[str, list[Mapping[str, Any]]] = {name: [] for name in self._names}
        for event in events:
            if event["event"] in by_name and event.get("global_step") is not None:
                by_name[event["event"]].append(event)
        for name, found in by_name.items():
            for stretch in _ascending(found):
                self._add_ascending(name, stretch)

    def _add_ascending(self, name: str, events: Sequence[Mapping[str, Any]]) -> None:
        for (each, key), curve in self._curves.items():
            if each != name:
                continue
            # `value - value` is 0 only for a finite number: infinity and NaN give NaN.
            points = [
                (int(event["global_step"]), value)
                for event in events
                if isinstance(value := event.get(key), int | float) and value - value == 0
            ]
            if points:
                steps, values = zip(*points, strict=True)
                curve.add(steps, values)

    def points(self, name: str, key: str) -> list[Point]:
        """Return the points of a curve."""
        return self._curves[name, key].points()


def _ascending(events: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Split the events into stretches with ascending steps. A restart begins a new stretch."""
    first, last_step = 0, -math.inf
    for index, event in enumerate(events):
        step = event["global_step"]
        if step <= last_step:
            yield events[first:index]
            first = index
        last_step = step
    if first < len(events):
        yield events[first:]


@dataclass
class EventFile:
    """Reader of a growing file with an event in each line."""

    path: Path
    offset: int = 0
    """Number of bytes read so far."""
    size: int = 0
    """Size of the file in bytes at the last read."""
    _inode: int = 0

    def read(self, seconds: float = READ_SECONDS) -> Iterator[list[Event]]:
        """Yield the new events in chunks, for about `seconds`. Yield [] first if the file was replaced or truncated."""
        try:
            opened = self.path.open("rb")
        except OSError:
            return
        with opened:
            status = os.fstat(opened.fileno())
            if self._inode not in (0, status.st_ino) or status.st_size < self.offset:
                self.offset = 0
                yield []
            self._inode, self.size = status.st_ino, status.st_size
            until = time.monotonic() + seconds
            opened.seek(self.offset)
            while time.monotonic() < until:
                chunk = opened.read(CHUNK_BYTES)
                if b"\n" not in chunk:  # The line is longer than a chunk, or it is not complete.
                    chunk += opened.readline()
                end = chunk.rfind(b"\n") + 1
                if not end:
                    return
                self.offset += end
                opened.seek(self.offset)
                if events := parse_lines(chunk[:end]):  # The caller would take an empty list for a replaced file.
                    yield events


def parse_lines(text: bytes) -> list[Event]:
    """Return the events in lines of JSON. Skip lines that are cut off."""
    lines = text.splitlines()
    try:
        # Parsing all lines in one call takes half the time.
        found = json.loads(b"[" + b",".join(filter(None, lines)) + b"]")
    except ValueError:
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # A killed run may have cut the line off.
    return [each for each in found if isinstance(each, dict) and "event" in each and "time" in each]


def last_train_event(path: Path) -> Event | None:
    """Return the last `train` event near the end of a rank's file; None if it has none."""
    try:
        with path.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL_BYTES))
            tail = opened.read()
    except OSError:
        return None
    for line in reversed(tail.splitlines()):
        if line.startswith(b'{"event": "train"') and line.endswith(b"}"):
            try:
                found: Event = json.loads(line)
            except ValueError:
                continue
            return found
    return None


@dataclass
class RankFiles:
    """Last `train` event of each rank of a job, read from the metrics in a folder of this machine."""

    folder: Path
    latest: dict[int, Event] = field(default_factory=dict)
    _next: int = 0

    def update(self, ranks: int) -> None:
        """Read the files of the ranks, at most RANKS_PER_REFRESH in one call."""
        first = self._next if self._next < ranks else 0
        last = min(ranks, first + RANKS_PER_REFRESH)
        for rank in range(first, last):
            if event := last_train_event(self.folder / f"rank-{rank}.jsonl"):
                self.latest[rank] = event if rank == 0 else {key: event[key] for key in RANK_KEYS if key in event}
        self._next = 0 if last >= ranks else last
        for rank in [each for each in self.latest if each >= ranks]:
            del self.latest[rank]
