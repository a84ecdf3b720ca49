"""Output about a followed job: lines of its hosts, states of its pods, its result, and on a terminal a live line."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from commands.monitor.job_state import JobState
from commands.monitor.logs import Event, Progress, before_report, exit_codes, looks_like_an_error, parse_event
from commands.monitor.pod_state import PodState, count_restarts, latest_pods, seconds_between
from infra.make_command import make_command
from settings.text import wrap

MANY_RANKS = 4
"""Number of ranks above which the screen shows only starts, restarts and errors of ranks other than 0."""
HIDDEN_FIELDS = frozenset(
    {
        *("rank", "host", "node", "time", "global_step", "threads", "path", "model"),
        *("data_wait", "all_reduce", "memory_mib", "goodput", "teraflops", "compilations"),
    }
)
"""Fields of events that a readable line leaves out. A user's own fields stay."""
TRAIN_LINE_SECONDS = 60.0
"""Seconds between two `train` lines of a job on a terminal, where the live line has the current step."""
_STACK_FRAME = re.compile(r"frame #\d+: |Exception raised from \S+ at ")
"""Line of a C++ stack, which PyTorch prints after a warning about a lost peer. The warning itself says what happened:
https://github.com/pytorch/pytorch/blob/v2.9.1/c10/util/Backtrace.cpp"""
_STOPPED_PROCESS = re.compile(
    r"W\d{4} \S+ .*/torch/distributed/elastic/multiprocessing/api\.py:\d+\] (Sending|Closing) process \d+ "
)
"""torchrun's warning that it stops the processes of its host. The lines around it say why:
https://github.com/pytorch/pytorch/blob/v2.9.1/torch/distributed/elastic/multiprocessing/api.py"""
ENDED_BY_ANOTHER_HOST = "error: another host ended the job: "
"""Start of the launcher's last line on a host that is not to blame (trainer/restarts/agent.py)."""
SHOWN_LINES = 20
"""Maximum number of last lines of a failed host that the summary shows."""
CHECKPOINT_MISMATCHES = ("checkpoints can be used", "Error(s) in loading state_dict for")
"""Texts of the trainer (trainer/checkpoints/checkpoint.py) and of PyTorch about a checkpoint of another model:
https://github.com/pytorch/pytorch/blob/v2.9.1/torch/nn/modules/module.py, load_state_dict."""
FIRST_SPECIFIC_CODE = 64
"""First exit code with a specific meaning (sysexits.h). A rank of a script ends with 1 if it only lost its peers."""
STYLES = {
    **{"start": "cyan", "test": "bold green", "done": "bold green", "checkpoint": "blue", "resume": "blue"},
    "restart": "yellow",
}
"""Event -> style of its line."""


class Detail(Enum):
    """Amount of output about the ranks."""

    READABLE = "readable"
    """Lines and main fields of rank 0; of other ranks only errors and restarts."""
    LINES = "lines"
    """Lines of all ranks; of more than MANY_RANKS ranks, only starts, restarts and errors of ranks other than 0.

    A terminal shows only as many fields of an event as fit in one line.
    """
    ALL = "all"
    """All lines of all ranks with all fields."""


class Screen:
    """Writer of a job's output to one text stream. A terminal has colours, and live lines at the bottom."""

    def __init__(self, out: TextIO, *, only_rank: int | None = None, detail: Detail = Detail.LINES) -> None:
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._only_rank = only_rank
        self.detail = detail
        """Amount of output about the ranks."""
        self._live: Live | None = None
        self._train_shown: dict[str, float] = {}

    @property
    def width(self) -> int:
        """Number of characters in a line of the terminal."""
        return self._console.width

    def live(self) -> AbstractContextManager[Any]:
        """Keep live lines at the bottom in this context. Do nothing without a terminal."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return nullcontext()
        self._live = Live(Text("asking the cluster"), console=self._console, transient=True)
        return self._live

    def set_live_lines(self, lines: Sequence[str]) -> None:
        """Set the live lines."""
        if self._live is not None:
            self._live.update(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)))

    def note(self, text: str, style: str = "yellow") -> None:
        """Print a line of Trainyard itself, not of a job."""
        self._print(Text(wrap(text, self._console.file), style=style))

    def line(self, pod: PodState, text: str, ranks: int) -> None:
        """Print a line of a host's log if it should be shown. `ranks` is the number of all followed ranks."""
        event = parse_event(text)
        rank = None if event is None else event.rank
        # A line without a rank counts for all ranks of its pod. A launcher's pod has no ranks and counts as rank 0.
        line_ranks = list(pod.ranks) or [0] if rank is None else [rank]
        label = (pod.ranks[0] if pod.ranks else pod.label) if rank is None else rank
        if not self._is_shown(text, event, line_ranks, ranks) or (event and self._is_in_live_line(pod.job, event)):
            return
        style = STYLES.get(event.name, "") if event is not None else ("red" if looks_like_an_error(text) else "")
        prefix = Text(f"{pod.job}/{label} | " if ranks > 1 else "", style="dim")
        if event is not None and self.detail is Detail.READABLE:
            text = readable_fields(text)
        if event is not None and self.detail is not Detail.ALL and self._console.is_terminal:
            text = first_fields(text, self._console.width - len(prefix))
        body = Text.from_ansi(text)
        body.stylize_before(style)
        self._print(prefix + body)

    def _is_shown(self, text: str, event: Event | None, line_ranks: Sequence[int], ranks: int) -> bool:
        if self.detail is Detail.READABLE and (_STACK_FRAME.match(text) or _STOPPED_PROCESS.match(text)):
            return False
        if self._only_rank is not None:
            return self._only_rank in line_ranks
        if self.detail is Detail.ALL or 0 in line_ranks or (self.detail is Detail.LINES and ranks <= MANY_RANKS):
            return True
        shown = ("restart",) if self.detail is Detail.READABLE else ("start", "restart")
        return event.name in shown if event is not None else looks_like_an_error(text)

    def _is_in_live_line(self, job: str, event: Event) -> bool:
        """Return True for a step that only the live line shows.

        The screen also prints the last step of each epoch, and one step every TRAIN_LINE_SECONDS.
        """
        if self._live is None or self.detail is not Detail.READABLE or event.name != "train":
            return False
        step, _, steps = event.fields.get("step", "").partition("/")
        now = time.monotonic()
        if not steps or step == steps or now - self._train_shown.setdefault(job, now) >= TRAIN_LINE_SECONDS:
            self._train_shown[job] = now
            return False
        return True

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


class JsonScreen(Screen):
    """Writer of one JSON object for each line of a host's log. Trainyard's own lines go to stderr."""

    def __init__(self, out: TextIO, *, only_rank: int | None = None) -> None:
        super().__init__(sys.stderr, only_rank=only_rank, detail=Detail.ALL)
        self._out = out

    def live(self) -> AbstractContextManager[Any]:
        """Do nothing: a program reads the output."""
        return nullcontext()

    def line(self, pod: PodState, text: str, ranks: int) -> None:
        """Print a line of a host's log, and the values of the event in it."""
        del ranks
        event = parse_event(text)
        rank = None if event is None else event.rank
        if self._only_rank is not None and self._only_rank not in (list(pod.ranks) if rank is None else [rank]):
            return
        found: dict[str, Any] = {"job": pod.job, "host": pod.label, "text": text}
        if event is not None:
            found |= {"event": event.name, "rank": rank, "fields": event.fields}
        print(json.dumps(found), file=self._out, flush=True)


def readable_fields(text: str) -> str:
    """Return an event's line without HIDDEN_FIELDS. If it has the rate of all ranks, leave out this rank's rate."""
    keys = {word.partition("=")[0] for word in text.split(" ") if "=" in word}
    hidden = HIDDEN_FIELDS | ({"rate"} if "global_rate" in keys else set())
    kept = [word for word in text.split(" ") if "=" not in word or word.partition("=")[0] not in hidden]
    return " ".join(kept)


def first_fields(text: str, width: int) -> str:
    """Return as many words of an event as fit in one line of a terminal. The most important fields come first."""
    if len(text) <= width:
        return text
    return text[: width + 1].rpartition(" ")[0].rstrip() or text


def describe(pod: PodState, earlier: int, *, is_job_over: bool = False) -> str:
    """Return a pod's state in one line. `earlier` is the number of earlier starts of its host."""
    again = f" (restart {earlier})" if earlier else ""
    node = f" on {pod.node}" if pod.node else ""
    why = "; ".join(filter(None, (pod.why, "" if is_job_over else pod.backoff(earlier))))
    why = f": {why}" if why else ""
    return f"{_label(pod)} {pod.state}{node}{again}{why}"


def restart_reason(pod: PodState, event: Event) -> str:
    """Return the reason for a restart in place, from the launcher's event; empty if it has no exit code."""
    code, rank = event.fields.get("exit_code", ""), event.fields.get("failed_rank", "")
    if not code.lstrip("-").isdigit():
        return ""
    # Leave out the container's exit code: the container ended later or not at all.
    running = replace(pod, exit_code=None)
    return f"restarted after rank {rank} ended with {running.exit_text(int(code))}"


def describe_many(name: str, pods: Iterable[PodState]) -> str:
    """Return the number of a job's pods in each state and for each reason."""
    counts: dict[str, int] = {}
    for pod in pods:
        words = pod.state if not pod.why else f"{pod.state} ({pod.why})"
        counts[words] = counts.get(words, 0) + 1
    return f"{name}: " + ", ".join(f"{count} {words}" for words, count in sorted(counts.items()))


def state_text(job: JobState, seconds: float | None) -> str:
    """Return the live line of a job that is not training. `seconds` is the time since its start."""
    return "  ".join(filter(None, (job.name, job.state, format_seconds(seconds))))


def result_text(progress: Progress | None) -> str:
    """Return the result of a job's training: accuracy or bits per byte on the test set, else its last loss."""
    if progress is None:
        return ""
    if accuracy := progress.value("test_accuracy", "done"):
        best = progress.value("best_accuracy", "done")
        return f"test accuracy {accuracy} %" + (f" (best {best} %)" if best else "")
    if bits := progress.value("test_bits_per_byte", "done"):
        return f"test {bits} bits per byte (best {progress.value('best_bits_per_byte', 'done')})"
    loss = progress.value("loss", "test", "train")
    return f"loss {loss}" if loss else ""


def summary(
    job: JobState, pods: list[PodState], progress: Progress | None, tails: Mapping[str, list[str]]
) -> list[str]:
    """Return lines about a job that has ended: its result, and for an incomplete job the causes.

    These are the reason, how each rank ended, and the last lines of the pod to blame.
    """
    words = [f"{job.name}: {state_after(job)}"]
    if result := result_text(progress):
        words.append(result)
    words.append(restarts_text(job, restarts_of(pods, progress)))
    lines = ["; ".join(words)]
    if job.state == "complete":
        return lines
    if job.reason:
        lines.append(f"  reason: {job.reason}")
    newest = latest_pods(pods)
    for pod in newest:
        lines += [f"  {text}" for text in _rank_ends(pod, tails.get(pod.uid, []))]
    culprit = _pod_to_blame(newest, tails)
    if culprit is not None:
        lines.append(f"  last lines of {_label(culprit)}:")
        lines += [f"    {text}" for text in before_report(tails[culprit.uid])[-SHOWN_LINES:]]
    if any(mark in text for tail in tails.values() for text in tail for mark in CHECKPOINT_MISMATCHES):
        fresh = make_command("rerun", JOB=job.name, FRESH="1")
        lines.append(f"  no checkpoint fits: undo a change of the model, or start from the beginning: {fresh}")
    return lines


def state_after(job: JobState) -> str:
    """Return the state and duration of a job that has ended. The duration counts from its last start."""
    duration = format_seconds(seconds_between(job.started, job.finished))
    if not duration:
        return job.state
    return f"{job.state} {duration} after its last start" if job.is_resumed else f"{job.state} after {duration}"


def restarts_text(job: JobState, count: int) -> str:
    """Return the number of restarts of a job. Restarts before a stop are unknown."""
    return f"restarts {count}" + (" since its last start" if job.is_resumed else "")


def restarts_of(pods: Iterable[PodState], progress: Progress | None) -> int:
    """Return the number of restarts of a job: of its pods, or of the ranks in them if that is more."""
    in_place = int(progress.value("number", "restart") or 0) if progress else 0
    return max(count_restarts(pods), in_place)


def _pod_to_blame(pods: Iterable[PodState], tails: Mapping[str, list[str]]) -> PodState | None:
    """Return the failed pod to blame; None if no failed pod has a log.

    Prefer a pod that no other host ended, then a rank's code from FIRST_SPECIFIC_CODE on, then the first failure.
    """

    def blame_order(pod: PodState) -> tuple[bool, bool, str, tuple[bool, str, int]]:
        is_ended_by_another = any(line.startswith(ENDED_BY_ANOTHER_HOST) for line in tails[pod.uid])
        codes = exit_codes(tails[pod.uid]).values()
        has_specific_code = any(code >= FIRST_SPECIFIC_CODE for code in codes)
        return is_ended_by_another, not has_specific_code, pod.finished or "9", pod.place

    return min((pod for pod in pods if pod.state == "failed" and tails.get(pod.uid)), key=blame_order, default=None)


def _rank_ends(pod: PodState, tail: list[str]) -> list[str]:
    """Return lines about the end of a pod's ranks, from torchrun's report, else from the state of the container."""
    if not pod.is_over:
        return [f"{_label(pod)} on {pod.node or 'no node'}: was {pod.state} when the job ended"]
    reported = exit_codes(tail) if pod.state == "failed" else {}
    lines = [f"{pod.job}/{rank} on {pod.node}: {pod.exit_text(code)}" for rank, code in reported.items()]
    if lines and pod.reason in ("", "Error"):
        return lines
    return [describe(pod, 0, is_job_over=True), *lines]


def _label(pod: PodState) -> str:
    return f"{pod.job}/{pod.label}"


def format_seconds(seconds: float | None) -> str:
    """Return a duration as text; empty if unknown."""
    if seconds is None:
        return ""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


BLOCKS = "▁▂▃▄▅▆▇█"
MAX_SPARKS = 20
MIN_SPARKS = 4
"""Maximum and minimum length of the chart of losses in a live line, in characters."""
KEPT_LOSSES = 400
"""Number of last losses in that chart."""
DAY_SECONDS = 86400
BACK_SECONDS = 3600
"""Maximum seconds that a printed time may be before the time of the line above it, because hosts' clocks differ."""
SEPARATOR = "  "


@dataclass
class Training:
    """Progress of one job's training, from the events of its lowest rank."""

    epochs: int = 0
    """Number of epochs of the job; 0 if unknown."""
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LOSSES))
    """Losses of the training steps, oldest first."""
    fields: dict[str, str] = field(default_factory=dict)
    """Fields of the last `train` event."""
    rank: int | None = None
    """Rank of the last `train` event."""
    first: tuple[float, float] | None = None
    """Time of the first `train` event since the start or the last restart, and the share of steps done then."""
    last: tuple[float, float] | None = None
    """Time of the last `train` event, and the share of steps done then."""

    def read(self, event: Event, now: float) -> None:
        """Update the progress with an event of any rank. `now` is the time, in seconds, of an event without a time."""
        if event.name in ("start", "resume", "restart"):
            self.first = self.last = None
        rank = event.rank or 0
        if event.name != "train" or (self.rank is not None and rank > self.rank):
            return
        self.rank, self.fields = rank, event.fields
        loss = _number(event.fields.get("loss", ""))
        if loss is not None:
            self.losses.append(loss)
        if (share := self._share(event)) is not None:
            clock = _clock(event.fields.get("time", ""), now)
            if self.last:  # The trainer prints no date. Add a day after midnight.
                clock = self.last[0] + (clock - self.last[0] + BACK_SECONDS) % DAY_SECONDS - BACK_SECONDS
            self.last = (clock, share)
            self.first = self.first or self.last

    def _share(self, event: Event) -> float | None:
        """Return the share of all steps that are done; None if unknown."""
        if event.global_step and event.global_step[1]:
            return min(1.0, event.global_step[0] / event.global_step[1])
        epoch = _number(event.fields.get("epoch", "").partition("/")[0])
        if epoch is None or not self.epochs or not event.epoch_step or not event.epoch_step[1]:
            return None
        return min(1.0, (epoch - 1 + event.epoch_step[0] / event.epoch_step[1]) / self.epochs)

    def seconds_left(self) -> float | None:
        """Return the expected seconds until the last step; None if unknown."""
        if not self.first or not self.last or self.last[1] <= self.first[1]:
            return None
        seconds = max(0.0, self.last[0] - self.first[0])
        return seconds * (1 - self.last[1]) / (self.last[1] - self.first[1])


def live_line(name: str, training: Training, width: int) -> str:
    """Return the live line of a job that trains, in at most `width` characters. The most important parts come first."""
    fields = training.fields
    epoch, loss = fields.get("epoch", ""), fields.get("loss", "")
    step = fields.get("step") or fields.get("global_step", "")
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
    """Return finite values as at most `width` blocks. Each block is the mean of about equally many values."""
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
    """Return the seconds since midnight of an event's time, such as 14:05:09; `now` for another text."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return now
    hours, minutes, seconds = map(int, parts)
    return float(hours * 3600 + minutes * 60 + seconds)


def _short(number: float) -> str:
    """Return a short form of a number, such as 12.3k."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if number >= 10 * factor or (number >= factor and unit == "M"):
            return f"{number / factor:.1f}{unit}"
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
