"""Runs set-up's steps one after the other and shows each: what it does now, and how long it took last time."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from infra.local.settings import cache_folder


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that must be true of this machine."""

    name: str
    """What is being made, for people."""
    is_done: Callable[[], bool]
    """Whether there is nothing to do; must be quick."""
    do: Callable[[Callable[[str], None]], None]
    """Makes it so; is given a function that shows one line of progress. Can be repeated after an interruption."""


def run_steps(steps: Sequence[Step]) -> None:
    """Run the steps that are not done; says nothing when all are."""
    durations = _durations()
    pending = [step for step in steps if not step.is_done()]
    for number, step in enumerate(pending, start=1):
        last = f", {_spell(durations[step.name])} last time" if step.name in durations else ""
        title = f"setup {number}/{len(pending)}: {step.name}{last}"
        begun = time.monotonic()
        with _ticking(title):
            step.do(lambda text: print(f"    {text}", flush=True))
        if not step.is_done():
            raise RuntimeError(f"set-up step {step.name!r} ended without its result: this is a bug in setup/")
        durations[step.name] = time.monotonic() - begun
        _save(durations)
        print(f"setup {number}/{len(pending)}: {step.name} done in {_spell(durations[step.name])}", flush=True)


@contextmanager
def _ticking(title: str) -> Iterator[None]:
    """Show the title, and on a terminal the running time beside it."""
    print(title, flush=True)
    if not sys.stdout.isatty():
        yield
        return
    stop = threading.Event()
    begun = time.monotonic()

    def tick() -> None:
        while not stop.wait(1):
            print(f"\r    {_spell(time.monotonic() - begun)} ", end="", flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
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
