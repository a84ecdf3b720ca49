"""Parser of a host's output: the trainer's `event key=value ...` lines and torchrun's failure report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from workloads.kinds import KINDS

EVENTS = frozenset({"start", "train", "test", "checkpoint", "resume", "done", "restart"})
"""First words of the trainer's lines. The launcher prints `restart`."""

_PREFIX = re.compile("|".join(kind.line_prefix for kind in KINDS.values() if kind.line_prefix) or "(?!)")
"""Text that launchers put before the lines of training processes."""
_PAIR = re.compile(r"([A-Za-z_][\w.]*)=(\S*)")
_REPORT = re.compile(r"\s*(rank|exitcode)\s*: (-?\d+)\b")
_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b|^Traceback |\b(?:error|fatal|failed|refused|diverged|killed)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Event:
    """An event that the trainer reported."""

    name: str
    """Name of the event: a word of EVENTS."""
    fields: dict[str, str]
    """Its values as printed."""

    @property
    def rank(self) -> int | None:
        """Rank that reports it (`rank=3/8`); None if the line has none."""
        first = self.fields.get("rank", "").partition("/")[0]
        return int(first) if first.isdigit() else None


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
    """Return exit codes by rank, from torchrun's failure report (torch/distributed/elastic/multiprocessing/errors).

    torchrun itself exits with 1, whatever its workers' codes. A negative code is the signal that ended the worker.
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
    """Return the lines before torchrun's report, which is long and less informative; all lines if it has none."""
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
