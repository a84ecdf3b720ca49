"""Watch all ranks from a thread in each rank: report slow ranks, and end a hanging run with stack traces."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from statistics import median

import torch.distributed as dist

from trainer.exit_codes import HANG
from trainer.reporter import warn
from trainer.runtime.base import SETUP_SECONDS, Runtime

MAX_POLL_SECONDS = 1.0
"""Maximum seconds between two polls. If the time-out is below 8 s, the watchdog polls after each eighth of it."""
REPORT_GRACE_SECONDS = 3.0
"""Maximum seconds that a rank waits before it exits, so that all other running ranks can print their stack traces."""
SILENCE_SECONDS = 2 * MAX_POLL_SECONDS
"""Seconds without a poll after which a rank's process counts as stopped."""
GONE_SECONDS = 30.0
"""Seconds without a poll after which `wait_for_ranks` considers a rank's process gone. Slow C code can delay a poll."""
WINDOW_SECONDS = 5.0
"""Minimum seconds of a window, over which the watchdog compares ranks."""
SLOW_RATIO = 1.5
"""Minimum ratio of a slow rank's own work in a step to the other ranks' median."""
SLOW_WINDOWS = 3
"""Number of consecutive windows in which a rank must be slow to be reported. A single one may be chance."""


@dataclass(frozen=True)
class Heartbeat:
    """State that a rank publishes in the store."""

    polls: int = 0
    """Number of polls of the rank's watchdog. It does not grow if the process is stopped or gone."""
    progress: int = 0
    """Number of calls of `Watchdog.heartbeat`. It does not grow if the training hangs."""
    steps: int = 0
    """Number of steps that `seconds` covers."""
    seconds: float = 0.0
    """Seconds of this rank's own work in these steps, without its waits for other ranks."""

    def text(self) -> str:
        return json.dumps(astuple(self))

    @classmethod
    def read(cls, text: bytes) -> Heartbeat:
        """Parse a heartbeat from JSON."""
        return cls(*json.loads(text))


class Watchdog:
    """The watchdog of one rank.

    Call `heartbeat` wherever training makes progress, and `record_work` when the time of some steps is known. Both only
    set numbers. A thread publishes them, and compares the numbers of all ranks.
    """

    def __init__(self, runtime: Runtime, *, on_slow: Callable[[int, float], None]) -> None:
        self._runtime, self._timeout, self._on_slow = runtime, runtime.timeout, on_slow
        self._poll_seconds = min(MAX_POLL_SECONDS, self._timeout / 8)
        self._progress = self._polls = 0
        self._progressed = time.monotonic()
        self._work = (0, 0.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._stragglers = Stragglers(runtime.world)
        self._store = runtime.store

    def __enter__(self) -> Watchdog:
        self._publish()
        self._runtime.barrier()  # no rank may read before all have published
        self.heartbeat()
        self._runtime.heartbeat = self.heartbeat
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def heartbeat(self) -> None:
        """Record that training makes progress."""
        self._progress += 1
        self._progressed = time.monotonic()

    def record_work(self, steps: int, seconds: float) -> None:
        """Record the seconds of this rank's own work in its last `steps` steps."""
        self._work = (self._work[0] + steps, self._work[1] + seconds)

    def _run(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            try:
                self._poll()
            except dist.DistError as error:
                # The rank that keeps the store is gone. This rank will stop at its next collective, or at its time-out.
                self._store = None
                reason = str(error).partition("\n")[0]
                warn(f"the watchdog has lost the other ranks: {reason}")

    def _poll(self) -> None:
        self._publish()
        if self._is_hanging():
            self._exit_hanging()
        if self._store and self._runtime.rank == 0 and self._runtime.world > 1:
            for rank, ratio in self._stragglers.update(self._heartbeats(), time.monotonic()):
                self._on_slow(rank, ratio)

    def _publish(self) -> None:
        self._polls += 1
        if self._store:
            heartbeat = Heartbeat(self._polls, self._progress, *self._work)
            self._store.set(f"heartbeat/{self._runtime.rank}", heartbeat.text())

    def _heartbeats(self) -> list[Heartbeat]:
        assert self._store
        keys = [f"heartbeat/{rank}" for rank in range(self._runtime.world)]
        return [Heartbeat.read(text) for text in self._store.multi_get(keys)]

    def _is_hanging(self) -> bool:
        """Return True if training hangs on this rank, or if another rank reported a hang."""
        is_late = time.monotonic() - self._progressed > self._current_timeout()
        return is_late or bool(self._store and self._store.check(["hang"]))

    def _current_timeout(self) -> float:
        return self._timeout if self._work[0] > 1 else max(self._timeout, SETUP_SECONDS)

    def _exit_hanging(self) -> None:
        """Print every thread's stack and the ranks at fault. Exit once all ranks have done so, or time is up."""
        faulthandler.dump_traceback(all_threads=True)
        rank, blame = self._runtime.rank, "its training makes no progress"
        # The rank that keeps the store may exit first. Then this rank exits without the store.
        with suppress(dist.DistError):
            if self._store:
                self._store.set(f"reporting/{rank}", "1")
                self._store.set("hang", "1")
                blame = self._ranks_at_fault()
        silence = f"a rank did not answer within {self._current_timeout():g} s"
        sys.stderr.write(f"error: {silence}: {blame} (rank {rank}, exit code {HANG})\n")
        sys.stderr.flush()
        with suppress(dist.DistError):
            if self._store:
                self._store.set(f"reported/{rank}", "1")
                keys = [f"reported/{each}" for each in range(self._runtime.world)]
                until = time.monotonic() + REPORT_GRACE_SECONDS
                while time.monotonic() < until and not self._store.check(keys):
                    time.sleep(self._poll_seconds / 4)
        os._exit(HANG)

    def _ranks_at_fault(self) -> str:
        """Return a text with the ranks whose process is stopped or, if all run, the ranks with the least progress."""
        before = self._heartbeats()
        until = time.monotonic() + SILENCE_SECONDS
        while (silent := self._silent_since(before)) and time.monotonic() < until:
            time.sleep(self._poll_seconds / 4)
        self._publish()
        if silent:
            return f"the process of {_names(silent)} is stopped"
        after = self._heartbeats()
        least = min(heartbeat.progress for heartbeat in after)
        behind = [rank for rank, heartbeat in enumerate(after) if heartbeat.progress == least]
        return f"{_names(behind)} made the least progress"

    def _silent_since(self, before: list[Heartbeat]) -> list[int]:
        """Return the other ranks that have not polled since `before`, except ranks that print their own report."""
        assert self._store
        return [
            rank
            for rank, (old, new) in enumerate(zip(before, self._heartbeats(), strict=True))
            if old.polls == new.polls and rank != self._runtime.rank and not self._store.check([f"reporting/{rank}"])
        ]


def wait_for_ranks(runtime: Runtime, place: str) -> None:
    """Wait until every rank whose process still runs has called this with `place`. Call this before a collective that
    some ranks reach much later. Records heartbeats while a missing rank makes progress."""
    if (store := runtime.store) is None:
        return
    store.set(f"{place}/{runtime.rank}", "1")
    store.add(place, 1)
    missing, before, polled, pause = list(range(runtime.world)), dict[int, Heartbeat](), time.monotonic(), 0.01
    while missing and store.add(place, 0) < runtime.world and time.monotonic() - polled < GONE_SECONDS:
        time.sleep(pause := min(1.2 * pause, MAX_POLL_SECONDS))
        if pause < MAX_POLL_SECONDS / 4:
            continue  # Most ranks arrive in the first second. Polling each of them would take world² requests.
        missing = [rank for rank in missing if not store.check([f"{place}/{rank}"])]
        for rank, text in zip(missing, store.multi_get([f"heartbeat/{rank}" for rank in missing]), strict=True):
            now = Heartbeat.read(text)
            last, before[rank] = before.get(rank, now), now
            if now.progress != last.progress:
                runtime.heartbeat()
            if now.polls != last.polls:
                polled = time.monotonic()


class Stragglers:
    """Comparison of the ranks' own work in their steps, window by window."""

    def __init__(self, world: int) -> None:
        self._before = [Heartbeat()] * world
        self._updated = float("-inf")
        self._slow_windows = [0] * world

    def update(self, heartbeats: list[Heartbeat], now: float) -> list[tuple[int, float]]:
        """Return the ranks that were slow in SLOW_WINDOWS windows in a row, and their ratios to the others' median."""
        pairs = list(zip(heartbeats, self._before, strict=True))
        if now - self._updated < WINDOW_SECONDS or any(new.steps <= old.steps for new, old in pairs):
            return []
        step_seconds = [(new.seconds - old.seconds) / (new.steps - old.steps) for new, old in pairs]
        self._before, self._updated = heartbeats, now
        found = []
        for rank, seconds in enumerate(step_seconds):
            ratio = seconds / max(median(step_seconds[:rank] + step_seconds[rank + 1 :]), 1e-9)
            self._slow_windows[rank] = self._slow_windows[rank] + 1 if ratio >= SLOW_RATIO else 0
            # A rank that stays slow is reported again after each further SLOW_WINDOWS windows.
            if self._slow_windows[rank] and self._slow_windows[rank] % SLOW_WINDOWS == 0:
                found.append((rank, ratio))
        return found


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
