"""Watch the ranks from a thread in each: end the job with stack traces if a rank hangs, and report slow ranks."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from types import TracebackType

import torch.distributed as dist

from trainer.exit_codes import HANG
from trainer.runtime.base import Runtime

LONGEST_TICK = 1.0
"""Longest time between two polls in seconds. With a short time-out it is an eighth of the time-out."""
FAREWELL = 3.0
"""Seconds that a rank waits before it exits, so that all other running ranks can print their stack traces."""
SILENCE = 2 * LONGEST_TICK
"""Seconds without a heartbeat after which a rank's process counts as stopped."""
SETTING_UP = 300.0
"""Least time-out in seconds until the first step is done, because loading libraries and choosing kernels takes long."""
WINDOW = 5.0
"""Least time in seconds over which ranks are compared."""
SLOW = 1.5
"""A rank is slow if its own part of a step takes this many times the median of the other ranks."""
WINDOWS = 3
"""Number of consecutive slow windows before a rank is reported, because one may be chance."""


@dataclass(frozen=True)
class Sign:
    """State that a rank publishes in the store."""

    ticks: int = 0
    """Number of polls by the watchdog. It does not change if the process is stopped or gone."""
    beats: int = 0
    """Number of progress marks of the training. It does not change if the training hangs."""
    steps: int = 0
    """Number of steps in `seconds`."""
    seconds: float = 0.0
    """Seconds of this rank's own part of these steps, without waiting for other ranks."""

    def text(self) -> str:
        """Return the heartbeat as it is stored."""
        return f"{self.ticks} {self.beats} {self.steps} {self.seconds:.6f}"

    @classmethod
    def read(cls, text: bytes) -> Sign:
        """Parse the heartbeat of another rank."""
        ticks, beats, steps, seconds = text.split()
        return cls(int(ticks), int(beats), int(steps), float(seconds))


class Watch:
    """The watchdog of one rank.

    Call `heartbeat` wherever training makes progress, and `worked` when the time of some steps is known. Both only set
    numbers. A thread compares the numbers of all ranks through the store.
    """

    def __init__(self, runtime: Runtime, *, bound: float, slow: Callable[[int, float], None]) -> None:
        self._runtime, self._bound, self._slow = runtime, bound, slow
        self._tick = min(LONGEST_TICK, bound / 8)
        self._beats = 0
        self._beaten = time.monotonic()
        self._work = (0, 0.0)
        self._ticks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._stragglers = Stragglers(runtime.world)
        self._store = runtime.store

    def __enter__(self) -> Watch:
        self._show()
        self._runtime.barrier()  # every heartbeat is stored before any rank reads it
        self.beat()
        self._runtime.alive = self.beat
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def beat(self) -> None:
        """Record that training makes progress."""
        self._beats += 1
        self._beaten = time.monotonic()

    def worked(self, steps: int, seconds: float) -> None:
        """Record the seconds of this rank's own part of its last `steps` steps."""
        self._work = (self._work[0] + steps, self._work[1] + seconds)

    def _run(self) -> None:
        while not self._stop.wait(self._tick):
            try:
                self._look()
            except dist.DistError as error:
                # The rank that kept the store is gone. This rank will stop at its next collective, or at its own
                # time-out.
                self._store = None
                reason = str(error).partition("\n")[0]
                print(f"warning: the watchdog has lost the other ranks: {reason}", file=sys.stderr, flush=True)

    def _look(self) -> None:
        self._show()
        if self._hangs():
            self._end()
        if self._store and self._runtime.rank == 0 and self._runtime.world > 1:
            for rank, times in self._stragglers.look(self._signs(), time.monotonic()):
                self._slow(rank, times)

    def _show(self) -> None:
        self._ticks += 1
        if self._store:
            sign = Sign(self._ticks, self._beats, *self._work)
            self._store.set(f"sign/{self._runtime.rank}", sign.text())

    def _signs(self) -> list[Sign]:
        assert self._store
        keys = [f"sign/{rank}" for rank in range(self._runtime.world)]
        return [Sign.read(text) for text in self._store.multi_get(keys)]

    def _hangs(self) -> bool:
        """Return True if training hangs on this rank, or if another rank reported a hang."""
        bound = self._bound if self._work[0] else max(self._bound, SETTING_UP)
        if time.monotonic() - self._beaten > bound:
            return True
        return bool(self._store and self._store.check(["hang"]))

    def _end(self) -> None:
        """Print the stack of every thread and the rank at fault. End the process once all ranks have done so."""
        faulthandler.dump_traceback(all_threads=True)
        rank, blame = self._runtime.rank, "its training makes no progress"
        # The rank that keeps the store may exit first. Then this one exits without it.
        with suppress(dist.DistError):
            blame = self._agree() or blame
        text = f"error: a rank did not answer within {self._bound:g} s: {blame} (rank {rank}, exit code {HANG})\n"
        sys.stderr.write(text)
        sys.stderr.flush()
        with suppress(dist.DistError):
            self._bid_farewell()
        os._exit(HANG)

    def _agree(self) -> str:
        """Report the hang to the other ranks.

        Returns a description of the ranks at fault, or nothing without a store.
        """
        if self._store is None:
            return ""
        self._store.set(f"speaks/{self._runtime.rank}", "1")
        self._store.set("hang", "1")
        return self._blame()

    def _bid_farewell(self) -> None:
        """Wait for a limited time until every rank has printed its report."""
        if self._store is None:
            return
        self._store.set(f"said/{self._runtime.rank}", "1")
        everyone = [f"said/{rank}" for rank in range(self._runtime.world)]
        until = time.monotonic() + FAREWELL
        while time.monotonic() < until and not self._store.check(everyone):
            time.sleep(self._tick / 4)

    def _blame(self) -> str:
        """Return the ranks whose process is stopped. If all run, return the ranks with the least progress."""
        before = self._signs()
        until = time.monotonic() + SILENCE
        while (silent := self._silent_since(before)) and time.monotonic() < until:
            time.sleep(self._tick / 4)
        self._show()
        if silent:
            return f"the process of {_names(silent)} is stopped"
        after = self._signs()
        least = min(sign.beats for sign in after)
        return f"{_names([rank for rank, sign in enumerate(after) if sign.beats == least])} made the least progress"

    def _silent_since(self, before: list[Sign]) -> list[int]:
        """Return the other ranks without a poll since then, except ranks that are printing their own report."""
        assert self._store
        return [
            rank
            for rank, (one, other) in enumerate(zip(before, self._signs(), strict=True))
            if one.ticks == other.ticks and rank != self._runtime.rank and not self._store.check([f"speaks/{rank}"])
        ]


class Stragglers:
    """Compare the ranks' own parts of their steps, window by window."""

    def __init__(self, world: int) -> None:
        self._before = [Sign()] * world
        self._looked = float("-inf")
        self._in_a_row = [0] * world

    def look(self, signs: list[Sign], now: float) -> list[tuple[int, float]]:
        """Return the ranks that were slow in several windows, each with its ratio to the others."""
        advanced = all(sign.steps > before.steps for sign, before in zip(signs, self._before, strict=True))
        if not advanced or now - self._looked < WINDOW:
            return []
        each = [
            (sign.seconds - before.seconds) / (sign.steps - before.steps)
            for sign, before in zip(signs, self._before, strict=True)
        ]
        self._before, self._looked = signs, now
        found = []
        for rank, seconds in enumerate(each):
            times = seconds / max(median(each[:rank] + each[rank + 1 :]), 1e-9)
            self._in_a_row[rank] = self._in_a_row[rank] + 1 if times >= SLOW else 0
            # Report when several windows agree, and then once for each further series of windows.
            if self._in_a_row[rank] >= WINDOWS and self._in_a_row[rank] % WINDOWS == 0:
                found.append((rank, times))
        return found


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
