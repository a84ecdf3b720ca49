"""Watches the ranks from a thread of each: a rank that hangs ends the job with its stacks, a slow one is named."""

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
"""Seconds from one look to the next, at most; with a short bound an eighth of it."""
FAREWELL = 3.0
"""Seconds in which the ranks that still run say where they are before any of them leaves."""
SILENCE = 2 * LONGEST_TICK
"""Seconds without a look after which a rank's process is taken for one that does not run."""
SETTING_UP = 300.0
"""Seconds that a rank may take, at least, until its first step is done: libraries load, kernels are chosen."""
WINDOW = 5.0
"""Seconds over which ranks are compared, at least."""
SLOW = 1.5
"""A rank is slow whose own part of a step takes this many times the median of the others'."""
WINDOWS = 3
"""How many windows in a row a rank is slow before it is named: one may be chance."""


@dataclass(frozen=True)
class Sign:
    """What a rank shows of itself."""

    ticks: int = 0
    """How often its watch has looked: stands still where the process is stopped or gone."""
    beats: int = 0
    """How far its training has come: stands still where the training hangs."""
    steps: int = 0
    """Steps that `seconds` is about."""
    seconds: float = 0.0
    """Its own part of these steps: without waiting for other ranks."""

    def text(self) -> str:
        """The sign as it stands in the store."""
        return f"{self.ticks} {self.beats} {self.steps} {self.seconds:.6f}"

    @classmethod
    def read(cls, text: bytes) -> Sign:
        """The sign that another rank wrote."""
        ticks, beats, steps, seconds = text.split()
        return cls(int(ticks), int(beats), int(steps), float(seconds))


class Watch:
    """One rank's watch.

    `beat` is called wherever training gets on; `worked` whenever the time of some steps is known. Both only set
    numbers: the ranks compare them through the store, beside the training.
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
        self._runtime.barrier()  # every sign is there before anyone reads it
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
        """Training gets on."""
        self._beats += 1
        self._beaten = time.monotonic()

    def worked(self, steps: int, seconds: float) -> None:
        """This rank's own part of its last `steps` steps took so many seconds, all together."""
        self._work = (self._work[0] + steps, self._work[1] + seconds)

    def _run(self) -> None:
        while not self._stop.wait(self._tick):
            try:
                self._look()
            except dist.DistError as error:
                # Whoever kept the store is gone. This rank will leave when it next meets the others; should it never
                # get that far, its own bound still ends it.
                self._store = None
                reason = str(error).partition("\n")[0]
                print(f"warning: the ranks' watch sees this rank alone: {reason}", file=sys.stderr, flush=True)

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
        """Whether training stands still here, or another rank says that it does there."""
        bound = self._bound if self._work[0] else max(self._bound, SETTING_UP)
        if time.monotonic() - self._beaten > bound:
            return True
        return bool(self._store and self._store.check(["hang"]))

    def _end(self) -> None:
        """Say where every thread of this rank is and which rank is to blame; end the process once all have."""
        faulthandler.dump_traceback(all_threads=True)
        rank, blame = self._runtime.rank, "its training does not get on"
        # The store goes with the rank that keeps it, which may leave first: this one leaves all the same.
        with suppress(dist.DistError):
            blame = self._agree() or blame
        text = f"error: a rank did not answer within {self._bound:g} s: {blame} (rank {rank}, exit code {HANG})\n"
        sys.stderr.write(text)
        sys.stderr.flush()
        with suppress(dist.DistError):
            self._bid_farewell()
        os._exit(HANG)

    def _agree(self) -> str:
        """Tell the others, and say who is to blame; empty without a store."""
        if self._store is None:
            return ""
        self._store.set(f"speaks/{self._runtime.rank}", "1")
        self._store.set("hang", "1")
        return self._blame()

    def _bid_farewell(self) -> None:
        """Wait, for a while, until every rank has said what it had to say."""
        if self._store is None:
            return
        self._store.set(f"said/{self._runtime.rank}", "1")
        everyone = [f"said/{rank}" for rank in range(self._runtime.world)]
        until = time.monotonic() + FAREWELL
        while time.monotonic() < until and not self._store.check(everyone):
            time.sleep(self._tick / 4)

    def _blame(self) -> str:
        """The ranks whose process does not run; where all run, those whose training came least far."""
        before = self._signs()
        until = time.monotonic() + SILENCE
        while (silent := self._silent_since(before)) and time.monotonic() < until:
            time.sleep(self._tick / 4)
        self._show()
        if silent:
            return f"the process of {_names(silent)} does not run"
        after = self._signs()
        least = min(sign.beats for sign in after)
        return f"{_names([rank for rank, sign in enumerate(after) if sign.beats == least])} came least far"

    def _silent_since(self, before: list[Sign]) -> list[int]:
        """The other ranks that have not looked since then. One that is itself in here does not, but speaks."""
        assert self._store
        return [
            rank
            for rank, (one, other) in enumerate(zip(before, self._signs(), strict=True))
            if one.ticks == other.ticks and rank != self._runtime.rank and not self._store.check([f"speaks/{rank}"])
        ]


class Stragglers:
    """Compares the ranks' own parts of their steps, window by window."""

    def __init__(self, world: int) -> None:
        self._before = [Sign()] * world
        self._looked = float("-inf")
        self._in_a_row = [0] * world

    def look(self, signs: list[Sign], now: float) -> list[tuple[int, float]]:
        """The ranks that are slow since several windows, each with how many times slower than the others it is."""
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
            # Named when it is sure, and then ever more seldom.
            if self._in_a_row[rank] >= WINDOWS and self._in_a_row[rank] % WINDOWS == 0:
                found.append((rank, times))
        return found


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
