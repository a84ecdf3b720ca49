"""Reads the lines that a host of a job prints: the trainer's `event key=value ...` and torchrun's failure report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

EVENTS = frozenset({"start", "train", "test", "checkpoint", "resume", "done", "restart"})
"""First words of the trainer's lines; `restart` is its launcher's."""

_PAIR = re.compile(r"([A-Za-z_][\w.]*)=(\S*)")
_REPORT = re.compile(r"\s*(rank|exitcode)\s*: (-?\d+)\b")
_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b|^Traceback |\b(?:error|fatal|failed|refused|diverged|killed)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Event:
    """One event that the trainer reported."""

    name: str
    """What happened: a word of EVENTS."""
    fields: dict[str, str]
    """Its values as they were printed."""

    @property
    def rank(self) -> int | None:
        """The rank that reports it (`rank=3/8`); None where the line does not say."""
        first = self.fields.get("rank", "").partition("/")[0]
        return int(first) if first.isdigit() else None


def parse_event(line: str) -> Event | None:
    """The event that `line` reports; None for any other text."""
    name, _, rest = line.partition(" ")
    if name not in EVENTS:
        return None
    fields = dict(_PAIR.findall(rest))
    return Event(name, fields) if fields else None


def looks_like_an_error(line: str) -> bool:
    """Whether a line belongs on the screen of someone who sees only what goes wrong."""
    return parse_event(line) is None and bool(_ERROR.search(line))


def exit_codes(lines: Iterable[str]) -> dict[int, int]:
    """Exit code by rank, from torchrun's report of failures (torch/distributed/elastic/multiprocessing/errors).

    torchrun itself exits with 1 whatever its workers' codes were. A negative code is the signal that ended the worker.
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
    """The lines up to torchrun's report, which is long and says less than they do; all where there is no report."""
    first = next((number for number, line in enumerate(lines) if "failed (exitcode:" in line), None)
    return lines[:first] if first else lines


@dataclass
class Progress:
    """What the lines of one host have said so far."""

    latest: dict[str, Event] = field(default_factory=dict)
    """The last event of each name, of the host's first rank that reports it."""

    def read(self, line: str) -> Event | None:
        """Take one more line into account; returns its event."""
        event = parse_event(line)
        if event is not None:
            known = self.latest.get(event.name)
            if known is None or (event.rank or 0) <= (known.rank or 0):
                self.latest[event.name] = event
        return event

    def value(self, key: str, *names: str) -> str:
        """The last value of `key` among the events `names`, the first that has it; empty where none has."""
        for name in names:
            event = self.latest.get(name)
            if event is not None and key in event.fields:
                return event.fields[key]
        return ""
