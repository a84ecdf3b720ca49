"""Run set-up's steps, up to two at the same time. Show a bar with the time left, or lines for each step."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from infra.local.settings import cache_folder
from setup import CLEAR_LINE
from setup.disk import DiskNeed

MAX_CONCURRENT_STEPS = 2
"""Maximum number of concurrent steps. A step that compiles and a step that downloads and unpacks use two cores well."""
SHORT_STEP_MINUTES = 0.1
"""Expected minutes of a short step that has never run on this machine."""
OVERRUN_SHARE = 0.1
"""Expected time left of a step that takes longer than expected, as a share of the step's time so far."""
BAR_WIDTH = 24
REASON_LINES = 15
"""Number of last lines of an error to print while another step runs. The end of set-up prints the whole error."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Precondition that this machine must meet, with a check and a way to meet it."""

    name: str
    """Display name."""
    is_done: Callable[[], bool]
    """Function that returns True if there is no work to do. It must be quick."""
    do: Callable[[Callable[[str], None]], None]
    """Function that meets the precondition. Its argument shows one line of progress. After an interruption, set-up
    calls the function again."""
    after: Collection[str] | None = None
    """Names of the steps that must finish first, or None for all earlier steps."""
    first_minutes: float | None = None
    """Minutes of the first run on two idle cores, shown until the step has run on this machine. None for a short
    step."""
    disk: Collection[DiskNeed] = ()
    """Disk space of the first run, if the step needs much."""


def run_steps(steps: Sequence[Step]) -> None:
    """Run the steps that are not done. Print nothing if all are done.

    After a failure, no other step starts. Raises the error when the concurrent step has finished.
    """
    durations = _durations()
    pending = [step for step in steps if not step.is_done()]
    left, waiting, running = {step.name for step in pending}, pending, dict[Future[float], Step]()
    titles: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=MAX_CONCURRENT_STEPS) as pool, _progress_board(pending, durations) as board:
        while waiting or running:
            ready = [step for step in waiting if not left.intersection(_predecessors(step, pending))]
            for step in ready[: MAX_CONCURRENT_STEPS - len(running)]:
                # Also count the steps that earlier runs have finished, as `doctor` does.
                number = len(steps) - len(pending) + len(titles) + 1
                titles[step.name] = f"setup {number}/{len(steps)}: {step.name}"
                board.start(step.name, titles[step.name] + _expected_duration(step, durations))
                running[pool.submit(_run, step, board)] = step
            waiting = [step for step in waiting if step not in running.values()]
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                step = running.pop(future)
                board.end(step.name)
                if (error := future.exception()) and running:
                    # Print the reason now: the other step can take minutes, and an interrupt would discard the error.
                    names = " and ".join(each.name for each in running.values())
                    board.print_line(f"{titles[step.name]} failed; waiting for {names} to end\n{_last_lines(error)}")
                durations[step.name] = future.result()
                left.discard(step.name)
                _save(durations)
                board.done(step.name, f"{titles[step.name]} done in {format_duration(durations[step.name])}")


def _predecessors(step: Step, steps: Sequence[Step]) -> Collection[str]:
    """Return the names of the steps that must finish before this one starts."""
    return [each.name for each in steps[: steps.index(step)]] if step.after is None else step.after


def _expected_duration(step: Step, durations: Mapping[str, float]) -> str:
    """Return the expected duration of a step, for the end of its line."""
    if step.name in durations:
        return f", {format_duration(durations[step.name])} last time"
    return f", about {step.first_minutes:.0f} min on two cores" if step.first_minutes else ""


def _last_lines(error: BaseException) -> str:
    """Return the end of an error's text, which has the output of a failed program."""
    lines = str(error).splitlines() or [repr(error)]
    return "\n".join(f"    {line}" for line in lines[-REASON_LINES:])


def _run(step: Step, board: Board) -> float:
    begun = time.monotonic()
    step.do(lambda text: board.note(step.name, text))
    if not step.is_done():
        raise RuntimeError(f"set-up step {step.name!r} ended but is still not done; this is a bug in setup/")
    return time.monotonic() - begun


def time_left(
    steps: Sequence[Step], durations: Mapping[str, float], done: Collection[str], running: Mapping[str, float]
) -> float:
    """Return the expected seconds until all steps are done.

    `running` has the seconds that each running step has taken. A step that takes longer than expected counts as almost
    done.
    """
    left = {step.name: _seconds(step, durations) for step in steps if step.name not in done}
    active = {name: max(left[name] - spent, spent * OVERRUN_SHARE) for name, spent in running.items()}
    total = 0.0
    while left:
        for step in steps:
            is_free = len(active) < MAX_CONCURRENT_STEPS and step.name in left and step.name not in active
            if is_free and not left.keys() & set(_predecessors(step, steps)):
                active[step.name] = left[step.name]
        name = min(active, key=lambda each: active[each])
        passed = active.pop(name)
        active = {each: seconds - passed for each, seconds in active.items()}
        del left[name]
        total += passed
    return total


def _seconds(step: Step, durations: Mapping[str, float]) -> float:
    return durations.get(step.name) or (step.first_minutes or SHORT_STEP_MINUTES) * 60


def shorten(text: str, width: int) -> str:
    """Return a text of at most `width` characters, cut at a space. An ellipsis replaces the rest."""
    if len(text) <= width:
        return text
    return (text[:width].rpartition(" ")[0].rstrip(" ,:") or text[: width - 1]) + "…"


class LiveLine:
    """Last line of a terminal's output, which changes in place. Other outputs never show this line."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        if isinstance(self._out, io.TextIOWrapper):
            # Replace characters that the output's encoding lacks, such as the ellipsis.
            self._out.reconfigure(errors="replace")
        self._lock = threading.Lock()
        self.is_shown = self._out.isatty() and os.environ.get("TERM") != "dumb"
        """True if the output is a terminal that can change a line in place."""

    def print(self, text: str) -> None:
        """Print lines in place of the live line. The next `set` shows the live line below them."""
        self._write(f"{text}\n")

    def set(self, text: str) -> None:
        """Set the live line, shortened to the width of the terminal."""
        if self.is_shown:
            self._write(shorten(text, shutil.get_terminal_size().columns - 1))

    def clear(self) -> None:
        """Remove the live line."""
        if self.is_shown:
            self._write("")

    def _write(self, text: str) -> None:
        with self._lock:
            self._out.write((CLEAR_LINE if self.is_shown else "") + text)
            self._out.flush()


class Board:
    """Output of set-up: on a terminal a bar with the time left, else a line at each step's start and end."""

    def __init__(self, steps: Sequence[Step], durations: Mapping[str, float], out: TextIO | None = None) -> None:
        self._steps, self._durations = steps, dict(durations)
        self._step_started: dict[str, float] = {}
        self._done: set[str] = set()
        self._started = time.monotonic()
        self._share = 0.0
        self._line = LiveLine(out)
        self.has_bar = self._line.is_shown and bool(steps)
        """True if the output is a terminal and there are steps to run."""

    def start(self, name: str, title: str) -> None:
        """Note the start of a step. Without a bar, print the step's title."""
        if not self.has_bar:
            self.print_line(title)
        self._step_started[name] = time.monotonic()

    def end(self, name: str) -> None:
        """Remove a step from the running steps."""
        del self._step_started[name]

    def done(self, name: str, text: str) -> None:
        """Count a step as done. Without a bar, print a line."""
        self._done.add(name)
        if not self.has_bar:
            self.print_line(text)

    def note(self, name: str, text: str) -> None:
        """Print a progress line of a step."""
        self.print_line(f"    {name}: {text}" if len(self._step_started) > 1 else f"    {text}")

    def print_line(self, text: str) -> None:
        """Print a line."""
        self._line.print(text)

    def tick(self) -> None:
        """Show the bar."""
        self._line.set(self.bar(time.monotonic(), shutil.get_terminal_size().columns))

    def bar(self, now: float, width: int) -> str:
        """Return the bar: share of the expected time, time left, and the running steps as far as they fit."""
        running = {name: now - started for name, started in list(self._step_started.items())}
        left = time_left(self._steps, self._durations, self._done, running)
        spent = now - self._started
        self._share = max(self._share, spent / max(spent + left, 1e-9))
        full = round(self._share * BAR_WIDTH)
        words = f"setup [{'#' * full}{'-' * (BAR_WIDTH - full)}] {100 * self._share:3.0f} %, {_rough(left)} left: "
        return shorten(words + ", ".join(running), width - 1)

    def close(self) -> None:
        """Remove the bar. Print set-up's total time if every step is done."""
        self._line.clear()
        if self.has_bar and len(self._done) == len(self._steps):
            duration = format_duration(time.monotonic() - self._started)
            self.print_line(f"setup: {len(self._steps)} step{'s' * (len(self._steps) > 1)} done in {duration}")


@contextmanager
def _progress_board(steps: Sequence[Step], durations: Mapping[str, float]) -> Iterator[Board]:
    """Yield a board. On a terminal it shows the bar each second."""
    board = Board(steps, durations)
    if not board.has_bar:
        yield board
        return
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(1):
            board.tick()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield board
    finally:
        stop.set()
        thread.join()
        board.close()


def _rough(seconds: float) -> str:
    """Return an approximate duration as text: in minutes from 90 s on, else in seconds."""
    return f"about {round(seconds / 60)} min" if seconds >= 90 else f"about {max(round(seconds), 1)} s"


def format_duration(seconds: float) -> str:
    """Return a duration as text, such as `2 min 3 s` or `4.5 s`."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.1f} s"


def _durations() -> dict[str, float]:
    try:
        return dict(json.loads((cache_folder() / "durations.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):  # not written yet, or an interrupt cut it off
        return {}


def _save(durations: dict[str, float]) -> None:
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "durations.json").write_text(json.dumps(durations, indent=1), encoding="utf-8")
