"""Runs set-up's steps, two at once where they may, and shows each: what it does, and how long it took last time."""

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

AT_ONCE = 2
"""Steps that run beside each other: one that compiles and one that loads and unpacks fill two cores together."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that must be true of this machine."""

    name: str
    """What is being made, for people."""
    is_done: Callable[[], bool]
    """Whether there is nothing to do; must be quick."""
    do: Callable[[Callable[[str], None]], None]
    """Makes it so; is given a function that shows one line of progress. Can be repeated after an interruption."""
    after: Collection[str] | None = None
    """Names of the steps that must be done before it begins; None for all that stand before it."""
    first_minutes: float | None = None
    """Minutes that the step takes on two quiet cores, shown until it has run on this machine; None for a short step."""


def run_steps(steps: Sequence[Step]) -> None:
    """Run the steps that are not done; says nothing when all are.

    When one fails no other begins; its error is raised once those that run beside it have ended.
    """
    durations = _durations()
    pending = [step for step in steps if not step.is_done()]
    left, waiting, running = {step.name for step in pending}, pending, dict[Future[float], Step]()
    titles: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool, _board() as board:
        while waiting or running:
            ready = [step for step in waiting if not left.intersection(_first(step, pending))]
            for step in ready[: AT_ONCE - len(running)]:
                titles[step.name] = f"setup {len(titles) + 1}/{len(pending)}: {step.name}"
                board.begins(step.name, titles[step.name] + _expected(step, durations))
                running[pool.submit(_run, step, board)] = step
            waiting = [step for step in waiting if step not in running.values()]
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                step = running.pop(future)
                board.ends(step.name)
                if future.exception() and running:
                    names = " and ".join(each.name for each in running.values())
                    board.say(f"{titles[step.name]} failed; {names} comes to its end first")
                durations[step.name] = future.result()
                left.discard(step.name)
                _save(durations)
                board.say(f"{titles[step.name]} done in {_spell(durations[step.name])}")


def _first(step: Step, steps: Sequence[Step]) -> Collection[str]:
    """Names of the steps that must be done before this one begins."""
    return [each.name for each in steps[: steps.index(step)]] if step.after is None else step.after


def _expected(step: Step, durations: Mapping[str, float]) -> str:
    """Return how long the step is expected to take, for the end of its line."""
    if step.name in durations:
        return f", {_spell(durations[step.name])} last time"
    return f", about {step.first_minutes:.0f} min on two cores" if step.first_minutes else ""


def _run(step: Step, board: Board) -> float:
    """The seconds that the step took."""
    begun = time.monotonic()
    step.do(lambda text: board.note(step.name, text))
    if not step.is_done():
        raise RuntimeError(f"set-up step {step.name!r} ended without its result: this is a bug in setup/")
    return time.monotonic() - begun


class Board:
    """What people see: a line for all that happens and, on a terminal, below them how long the running steps take."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._order = threading.Lock()
        self._on_terminal = sys.stdout.isatty()

    def begins(self, name: str, title: str) -> None:
        """A step begins."""
        self.say(title)
        self._begun[name] = time.monotonic()

    def ends(self, name: str) -> None:
        """A step has ended."""
        del self._begun[name]

    def note(self, name: str, text: str) -> None:
        """A line of progress of a step."""
        self.say(f"    {name}: {text}" if len(self._begun) > 1 else f"    {text}")

    def say(self, text: str) -> None:
        """A line."""
        with self._order:
            print(("\r\033[K" if self._on_terminal else "") + text, flush=True)

    def tick(self) -> None:
        """Show the running times."""
        now = time.monotonic()
        times = "; ".join(f"{name} {_spell(now - begun)}" for name, begun in list(self._begun.items()))
        with self._order:
            print(f"\r\033[K    {times}", end="", flush=True)


@contextmanager
def _board() -> Iterator[Board]:
    """A board, ticking on a terminal."""
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


def _spell(seconds: float) -> str:
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
