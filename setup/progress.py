"""Runs set-up's steps, up to two at the same time, and shows each step with its last duration."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from infra.local.settings import cache_folder

MAX_CONCURRENT_STEPS = 2
"""Number of concurrent steps. One that compiles and one that downloads and unpacks use two cores well."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Precondition of this machine, with a check and a way to meet it."""

    name: str
    """Display name."""
    is_done: Callable[[], bool]
    """Function that returns True if there is no work to do. It must be quick."""
    do: Callable[[Callable[[str], None]], None]
    """Function that meets the precondition. Its argument shows one line of progress. It is repeatable after an
    interruption."""
    after: Collection[str] | None = None
    """Names of the steps that must finish first, or None for all earlier steps."""
    first_minutes: float | None = None
    """Minutes of the first run on two idle cores, shown until the step has run on this machine. None for a short
    step."""


def run_steps(steps: Sequence[Step]) -> None:
    """Run the steps that are not done. Prints no output if all are done.

    After a failure no further step starts. Raises the error when the concurrent step has finished.
    """
    durations = _durations()
    pending = [step for step in steps if not step.is_done()]
    left, waiting, running = {step.name for step in pending}, pending, dict[Future[float], Step]()
    titles: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=MAX_CONCURRENT_STEPS) as pool, _progress_board() as board:
        while waiting or running:
            ready = [step for step in waiting if not left.intersection(_predecessors(step, pending))]
            for step in ready[: MAX_CONCURRENT_STEPS - len(running)]:
                titles[step.name] = f"setup {len(titles) + 1}/{len(pending)}: {step.name}"
                board.start(step.name, titles[step.name] + _expected_duration(step, durations))
                running[pool.submit(_run, step, board)] = step
            waiting = [step for step in waiting if step not in running.values()]
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                step = running.pop(future)
                board.end(step.name)
                if future.exception() and running:
                    names = " and ".join(each.name for each in running.values())
                    board.print_line(f"{titles[step.name]} failed; waiting for {names} to end")
                durations[step.name] = future.result()
                left.discard(step.name)
                _save(durations)
                board.print_line(f"{titles[step.name]} done in {_format_duration(durations[step.name])}")


def _predecessors(step: Step, steps: Sequence[Step]) -> Collection[str]:
    """Return the names of the steps that must finish before this one starts."""
    return [each.name for each in steps[: steps.index(step)]] if step.after is None else step.after


def _expected_duration(step: Step, durations: Mapping[str, float]) -> str:
    """Return the expected duration of a step, for the end of its line."""
    if step.name in durations:
        return f", {_format_duration(durations[step.name])} last time"
    return f", about {step.first_minutes:.0f} min on two cores" if step.first_minutes else ""


def _run(step: Step, board: Board) -> float:
    """Run a step and return its duration in seconds."""
    begun = time.monotonic()
    step.do(lambda text: board.note(step.name, text))
    if not step.is_done():
        raise RuntimeError(f"set-up step {step.name!r} ended without its result: report this bug in setup/")
    return time.monotonic() - begun


class Board:
    """Terminal output: a line for each event and, on a terminal, a last line with the running times."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._print_lock = threading.Lock()
        self._on_terminal = sys.stdout.isatty()

    def start(self, name: str, title: str) -> None:
        """Print the title of a step that starts."""
        self.print_line(title)
        self._begun[name] = time.monotonic()

    def end(self, name: str) -> None:
        """Stop showing a step's time."""
        del self._begun[name]

    def note(self, name: str, text: str) -> None:
        """Print a line of progress of a step."""
        self.print_line(f"    {name}: {text}" if len(self._begun) > 1 else f"    {text}")

    def print_line(self, text: str) -> None:
        """Print a line."""
        with self._print_lock:
            print(("\r\033[K" if self._on_terminal else "") + text, flush=True)

    def tick(self) -> None:
        """Show the running times."""
        now = time.monotonic()
        times = "; ".join(f"{name} {_format_duration(now - begun)}" for name, begun in list(self._begun.items()))
        with self._print_lock:
            print(f"\r\033[K    {times}", end="", flush=True)


@contextmanager
def _progress_board() -> Iterator[Board]:
    """Yield a board. On a terminal it shows the running times each second."""
    board = Board()
    if not sys.stdout.isatty():
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
        print("\r\033[K", end="", flush=True)


def _format_duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.1f} s"


def _durations() -> dict[str, float]:
    try:
        return dict(json.loads((cache_folder() / "durations.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def _save(durations: dict[str, float]) -> None:
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "durations.json").write_text(json.dumps(durations, indent=1), encoding="utf-8")
