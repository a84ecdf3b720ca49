"""Live line of a job on a terminal: epoch, step, loss with a spark line, rate, time left."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from commands.monitor.logs import Event

BLOCKS = "▁▂▃▄▅▆▇█"
MAX_SPARKS = 20
MIN_SPARKS = 4
"""Characters of a spark line at most, and below which it is left out."""
KEPT_LOSSES = 400
"""Losses of which the spark line is drawn."""
DAY_SECONDS = 86400
SEPARATOR = "  "


@dataclass
class Training:
    """Course of one job's training, from the events of its lowest rank."""

    epochs: int = 0
    """Number of epochs of the job; 0 if unknown."""
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LOSSES))
    """Losses of the training steps, oldest first."""
    fields: dict[str, str] = field(default_factory=dict)
    """Fields of the last `train` event."""
    rank: int | None = None
    """Rank that it came from."""
    first: tuple[float, float] | None = None
    """Time and share of the first event since the start or the last restart."""
    last: tuple[float, float] | None = None
    """Time and share of the last event."""

    def read(self, event: Event, now: float) -> None:
        """Take an event of any rank into account. `now` is its time if it has none itself, in seconds."""
        if event.name in ("start", "resume", "restart"):
            self.first = self.last = None
        rank = event.rank or 0
        if event.name != "train" or (self.rank is not None and rank > self.rank):
            return
        self.rank, self.fields = rank, event.fields
        loss = _number(event.fields.get("loss", ""))
        if loss is not None:
            self.losses.append(loss)
        if (share := self.share()) is not None:
            self.last = (_clock(event.fields.get("time", ""), now), share)
            self.first = self.first or self.last

    def share(self) -> float | None:
        """Return the share of all steps that are done; None if unknown."""
        step, _, steps = self.fields.get("step", "").partition("/")
        epoch = _number(self.fields.get("epoch", "1").partition("/")[0])
        done, total = _number(step), _number(steps)
        if done is None or not total or epoch is None or (not self.epochs and "epoch" in self.fields):
            return None
        return min(1.0, (epoch - 1 + done / total) / max(self.epochs, 1))

    def seconds_left(self) -> float | None:
        """Return the expected seconds until the last step; None if unknown."""
        if not self.first or not self.last or self.last[1] <= self.first[1]:
            return None
        seconds = (self.last[0] - self.first[0]) % DAY_SECONDS
        return seconds * (1 - self.last[1]) / (self.last[1] - self.first[1])


def live_line(name: str, training: Training, width: int) -> str:
    """Return the live line of a job that trains, in at most `width` characters. The most important parts come first."""
    fields = training.fields
    epoch, step, loss = (fields.get(key, "") for key in ("epoch", "step", "loss"))
    if epoch and training.epochs:
        epoch = f"{epoch}/{training.epochs}"
    rate = _number(fields.get("global_rate") or fields.get("rate", ""))
    left = training.seconds_left()
    parts = [
        name,
        f"epoch {epoch}" if epoch else "",
        f"step {step}" if step else "",
        f"loss {loss}" if loss else "",
        "",
        f"{_short(rate)}/s" if rate is not None else "",
        f"{_duration(left)} left" if left is not None else "",
    ]
    spark_place = 4
    text = SEPARATOR.join(filter(None, parts))
    free = min(width - len(text) - len(SEPARATOR), MAX_SPARKS)
    if loss and free >= MIN_SPARKS:
        parts[spark_place] = spark_line(training.losses, free)
        text = SEPARATOR.join(filter(None, parts))
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def spark_line(values: Sequence[float] | deque[float], width: int) -> str:
    """Return the course of finite values as at most `width` blocks; each is the mean of equally many values."""
    finite = [value for value in values if math.isfinite(value)]
    count = min(width, len(finite))
    if count < 2:
        return ""
    means = []
    for place in range(count):
        part = finite[place * len(finite) // count : (place + 1) * len(finite) // count]
        means.append(sum(part) / len(part))
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _clock(text: str, now: float) -> float:
    """Return the seconds of a time such as 14:05:09, which an event has; otherwise `now`."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return now
    hours, minutes, seconds = map(int, parts)
    return float(hours * 3600 + minutes * 60 + seconds)


def _short(number: float) -> str:
    """Return a number with three digits, such as 12.3k."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if number >= 10 * factor or (number >= factor and unit == "M"):
            return f"{number / factor:.1f}{unit}"
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def _duration(seconds: float) -> str:
    """Return an expected duration: seconds, minutes, or hours and minutes."""
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
