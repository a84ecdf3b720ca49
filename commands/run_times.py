"""Time of a run by cause, from rank 0's events, and the speed of each rank compared with the median."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

CAUSES = ("waiting", "set-up", "training", "evaluating", "saving", "lost", "stopped")
"""Causes in the order of a run. `stopped` is the time between two runs of the job; no percentage includes it."""
MEANINGS = {
    "waiting": "waiting for hosts and for the start of the processes",
    "set-up": "from the start of the processes to the first reported step",
    "training": "steps that led to the current weights",
    "evaluating": "on the test set",
    "saving": "delay that checkpoints added to steps (estimate)",
    "lost": "steps that a restart repeated, and the time until the processes ran again",
}
TYPICAL_INTERVALS = 101
"""Maximum number of recent intervals between two `train` events to keep. Their median is the typical time of a step.
Intervals with a checkpoint or an evaluation are not kept."""
MAX_MARKS = 4096
"""Maximum number of marks, which show how much a restart lost. Above this number, RunTimes drops every second mark."""
MAX_SPANS = 4096
"""Maximum number of spans. Above this number, RunTimes merges short spans into the spans before them."""
STRAGGLER_SPEED = 1 / 1.5
"""Speed, relative to the median of all ranks, below which a rank counts as a straggler."""

Event = Mapping[str, Any]


@dataclass(slots=True)
class Span:
    """Part of a run with one cause. Times are seconds since 1970."""

    begun: float
    ended: float
    cause: str

    @property
    def seconds(self) -> float:
        """Length of the span."""
        return self.ended - self.begun


@dataclass(slots=True)
class _Mark:
    """Reported step, its time, and the useful seconds of training until then."""

    step: float
    time: float
    useful: float


class RunTimes:
    """Time of a job's runs by cause. Add the events of rank 0 in their order.

    A run lasts from one start of the job in Kubernetes to its stop. An attempt lasts from one start of the processes to
    the next.
    """

    def __init__(self, job_started: float | None = None) -> None:
        """Begin with the time at which Kubernetes started the newest run of the job; None if unknown."""
        self.job_started = job_started
        self.created: float | None = None
        """Creation time of the job. The first wait begins then, if the job's first start is unknown."""
        self.possible_stops = 0
        """Number of gaps between attempts that may be stops or restarts. Kubernetes reports only the newest start."""
        self.totals = dict.fromkeys(CAUSES, 0.0)
        """Cause -> seconds of the closed spans."""
        self._spans: list[Span] = []
        self._marks: list[_Mark] = []
        self._step, self._count, self._stride = -1.0, 0, 1
        """Last reported step, number of reported steps, and number of reported steps from one mark to the next."""
        self._intervals: deque[float] = deque(maxlen=TYPICAL_INTERVALS)
        """Seconds of a step in each kept interval."""
        self._last: float | None = None
        """Time of rank 0's last event."""
        self._train: tuple[float, float] | None = None
        """Time and step of the attempt's last `train` event."""
        self._base = (0.0, 0.0)
        """Start of the run, and the useful seconds of training before it."""
        self._gap: Span | None = None
        """Span between the last two attempts, until the next `train` event."""
        self._is_done = self._has_restarted = False
        self._saving = self._testing = 0.0
        """Seconds of checkpoints and evaluations since the last `train` event."""
        self.starts: list[float] = []
        """Start of each attempt."""

    def add(self, event: Event) -> None:
        """Add the next event of rank 0 or of its launcher."""
        name, time = str(event["event"]), float(event["time"])
        if self._last is None:
            known = (each for each in (self.job_started, self.created) if each is not None and each < time)
            if (begun := next(known, None)) is not None:
                self._push(begun, time, "waiting")
            self._last = time
            self.starts.append(time)
        elif name == "restart":
            # The launcher prints this event. Rank 0 has done nothing useful since its own last event.
            if not self._has_restarted:
                self._end_attempt()
            self._has_restarted = True
            return
        elif name == "start" or self._has_restarted:
            if not self._has_restarted:
                self._end_attempt()
            self._begin_attempt(self._last, time)
            self._has_restarted = False
        time = max(time, self._last)
        if name == "resume" and (step := saved_step(event)) is not None:
            self._rewind(step)
        elif name == "train" and _is_number(event.get("global_step")):
            self._add_step(time, float(event["global_step"]))
        elif name == "checkpoint" and _is_number(event.get("seconds")):
            self._saving += float(event["seconds"])
        elif name == "test":
            self._testing += time - self._last
        self._is_done = name == "done"
        self._last = time

    def spans(self, until: float | None = None) -> list[Span]:
        """Return the spans, including the time from the last event to `until` unless the run is done."""
        found = [Span(each.begun, each.ended, each.cause) for each in self._spans]
        return [*found, *self._open_spans(until)]

    def seconds_by_cause(self, until: float | None = None) -> dict[str, float]:
        """Return cause -> seconds, in the order of CAUSES. Causes with 0 seconds are missing."""
        found = dict(self.totals)
        for span in self._open_spans(until):
            found[span.cause] += span.seconds
        return {cause: seconds for cause, seconds in found.items() if seconds > 0}

    def _open_spans(self, until: float | None) -> list[Span]:
        if self._last is None:
            if until is None or self.job_started is None or until <= self.job_started:
                return []
            return [Span(self.job_started, until, "waiting")]
        begun = self._train[0] if self._train else self.starts[-1]
        end = self._last if until is None or self._is_done else max(until, self._last)
        if self._has_restarted:
            return [Span(self._last, end, "lost")] if end > self._last else []
        if end <= begun:
            return []
        if not self._train:
            return [Span(begun, end, "set-up")]
        return self._split(begun, end, 0.0)

    def _begin_attempt(self, ended: float, time: float) -> None:
        """Record the time between two attempts: `lost` after a restart, else `waiting` or `stopped`."""
        self.starts.append(time)
        if self._is_done:
            self._push(ended, time, "stopped")
            self._marks.clear()
            self._step = -1.0
            self._base = (time, self.totals["training"])
            return
        if self._has_restarted or (self.job_started is not None and self.job_started <= ended):
            self._push(ended, time, "lost", joins=False)
            self._gap = None
            return
        if self.job_started is not None and ended < self.job_started < time:
            self._push(ended, self.job_started, "stopped")
            ended = self.job_started
        else:
            self.possible_stops += 1
        self._gap = self._push(ended, time, "waiting", joins=False)

    def _end_attempt(self) -> None:
        """Record the time from the attempt's last step to its last event."""
        assert self._last is not None
        if self._train is None:
            self._push(self.starts[-1], self._last, "set-up")
        else:
            for span in self._split(self._train[0], self._last, 0.0):
                self._push(span.begun, span.ended, span.cause)
        self._train, self._saving, self._testing = None, 0.0, 0.0

    def _add_step(self, time: float, step: float) -> None:
        if self._train is None:
            self._push(self.starts[-1], time, "set-up")
            if step <= self._step:
                self._rewind(step - 1)
        else:
            before, last_step = self._train
            steps = max(step - last_step, 0.0)
            if self._saving or self._testing:
                typical = median(self._intervals) * steps if self._intervals else 0.0
                for span in self._split(before, time, typical):
                    self._push(span.begun, span.ended, span.cause)
            else:
                self._push(before, time, "training")
                if steps:
                    self._intervals.append((time - before) / steps)
        self._gap = None
        self._train, self._saving, self._testing = (time, step), 0.0, 0.0
        self._step = step
        self._count += 1
        if self._count % self._stride == 0:
            self._marks.append(_Mark(step, time, self.totals["training"]))
        if len(self._marks) > MAX_MARKS:
            self._marks = self._marks[1::2]
            self._stride *= 2

    def _split(self, begun: float, ended: float, typical: float) -> list[Span]:
        """Split an interval into training, evaluating and saving. Its training usually takes `typical` seconds."""
        seconds = ended - begun
        testing = min(self._testing, max(seconds - typical, 0.0))
        saving = min(self._saving, max(seconds - typical - testing, 0.0)) if typical else 0.0
        parts = (("training", seconds - testing - saving), ("evaluating", testing), ("saving", saving))
        found, moment = [], begun
        for cause, length in parts:
            if length > 0:
                found.append(Span(moment, moment + length, cause))
                moment += length
        return found

    def _rewind(self, step: float) -> None:
        """Count the training after a step as lost: a restart repeats it."""
        if step >= self._step:
            return
        place = bisect_right(self._marks, step, key=lambda mark: mark.step)
        since, useful = (self._marks[place - 1].time, self._marks[place - 1].useful) if place else self._base
        del self._marks[place:]
        self._step = step
        if self._gap is not None and self._gap.cause == "waiting":
            self.totals["waiting"] -= self._gap.seconds
            self.totals["lost"] += self._gap.seconds
            self._gap.cause = "lost"
        self.totals["lost"] += self.totals["training"] - useful
        self.totals["training"] = useful
        for span in self._spans:
            if span.cause == "training" and span.begun >= since:
                span.cause = "lost"
        self._cut_training(since)

    def _cut_training(self, since: float) -> None:
        """Split the training span that contains a moment, and mark its second part as lost."""
        for place, span in enumerate(self._spans):
            if span.cause == "training" and span.begun < since < span.ended:
                self._spans.insert(place + 1, Span(since, span.ended, "lost"))
                span.ended = since
                return

    def _push(self, begun: float, ended: float, cause: str, *, joins: bool = True) -> Span | None:
        """Add a span and return it; None for an empty one. With `joins`, extend the last span if it has this cause."""
        if ended <= begun:
            return None
        self.totals[cause] += ended - begun
        last = self._spans[-1] if self._spans else None
        if joins and last is not None and last.cause == cause and last is not self._gap:
            last.ended = ended
            return last
        span = Span(begun, ended, cause)
        self._spans.append(span)
        if len(self._spans) > MAX_SPANS:
            self._spans = without_short(self._spans, MAX_SPANS // 2)
        return span


def without_short(spans: Iterable[Span], count: int) -> list[Span]:
    """Return the spans. Merge each span shorter than 1/`count` of the total time into the span before it."""
    found: list[Span] = []
    given = list(spans)
    min_seconds = (given[-1].ended - given[0].begun) / count if given else 0.0
    for span in given:
        if found and (span.seconds < min_seconds or found[-1].cause == span.cause):
            found[-1].ended = span.ended
        else:
            found.append(Span(span.begun, span.ended, span.cause))
    return found


def times_of(events: Iterable[Event], job_started: float | None = None, created: float | None = None) -> RunTimes:
    """Return the times of all events."""
    found = RunTimes(job_started)
    found.created = created
    for event in events:
        found.add(event)
    return found


def goodput(seconds: Mapping[str, float]) -> float | None:
    """Return the percentage of training in the time of all causes except `stopped`; None if that time is 0."""
    total = sum(each for cause, each in seconds.items() if cause != "stopped")
    return 100 * seconds.get("training", 0.0) / total if total > 0 else None


def saved_step(event: Event) -> float | None:
    """Return the step in a `checkpoint` or `resume` event; None if it has none. Prefer the step over all epochs."""
    found = (event.get(key) for key in ("global_step", "step"))
    return next((each for each in found if _is_number(each)), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def seconds_per_unit(event: Event) -> float | None:
    """Return a rank's own seconds per sample or token, without the time that it waits for other ranks."""
    rate, waited = event.get("rate"), event.get("all_reduce")
    if not isinstance(rate, int | float) or rate <= 0:
        return None
    share = waited / 100 if isinstance(waited, int | float) and 0 <= waited < 100 else 0.0
    return (1 - share) / rate


def speeds(latest: Mapping[int, Event]) -> dict[int, float]:
    """Return rank -> speed, relative to the median of all ranks: 0.5 for a rank that takes twice as long."""
    own = {rank: seconds for rank, event in latest.items() if (seconds := seconds_per_unit(event))}
    if not own:
        return {}
    usual = median(own.values())
    return {rank: usual / seconds for rank, seconds in own.items()}
