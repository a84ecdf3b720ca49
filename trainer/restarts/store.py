"""The store of host 0's launcher: what all hosts of a job agree on, and how a host reads and changes it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass, replace

from torch._C._distributed_c10d import Store, TCPStore  # torch.distributed's own; exported there without types

STATE = "state"
"""Key of the job's state in the store."""
SEEN = "seen"
"""Beginning of the keys with the state that each host has seen last; a host writes it when it changes."""
POLL_SECONDS = 0.2
"""Seconds between two polls of the state by a launcher."""
POLL_SECONDS_PER_HOST = 0.002
"""Seconds between two polls for each host of the job, so that the store answers at most 500 polls a second."""
CLOSE_SECONDS = 1.0
"""Seconds to wait for a poll that runs when the connection closes: the store of a dead node never answers it."""
SILENCE_SECONDS = 30.0
"""Seconds without an answer after which a launcher takes the store for lost: a dead node closes no connection."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The state that all hosts agree on."""

    round: int = 0
    """Number of the present round."""
    restarts: int = 0
    """Restarts that count so far."""
    is_left: bool = False
    """True if a host was told to leave during the round: the restart after it does not count."""
    over: str = ""
    """Reason why the job has ended; empty while it runs."""

    def text(self) -> str:
        """Return the state as it is in the store."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> State:
        """Return the state that the store holds."""
        return cls(**json.loads(text))

    def following(self, *, has_started: bool) -> State:
        """Return the state of the next round; only a round whose ranks were started can cost a restart."""
        return State(round=self.round + 1, restarts=self.restarts + (has_started and not self.is_left))


class Link:
    """A connection to the store of host 0, and a thread that polls the state through a second one."""

    def __init__(self, store: TCPStore, poll_seconds: float, host: int) -> None:
        self.store = store
        self._host = host
        store.compare_set(STATE, "", State().text())
        self.state = State.read(store.get(STATE))
        self.has_failed = False
        self._answered = time.monotonic()
        self._stop = threading.Event()
        self._poll_seconds = poll_seconds
        self._polling = threading.Thread(target=self._poll, args=(store.clone(),), name="rounds", daemon=True)
        self._polling.start()

    @property
    def is_lost(self) -> bool:
        """True if the store is gone, or silent for too long."""
        return self.has_failed or time.monotonic() - self._answered > SILENCE_SECONDS

    def close(self) -> None:
        """Stop polling.

        Python ends threads that still run at its exit, and a thread that is in torch then aborts the whole process.
        """
        self._stop.set()
        self._polling.join(CLOSE_SECONDS)

    def _poll(self, store: Store) -> None:
        seen: State | None = None
        while not self._stop.wait(self._poll_seconds):
            try:
                found = State.read(store.get(STATE))
                if found != seen:
                    store.set(f"{SEEN}/{self._host}", found.text())
                self.state = seen = found
            except RuntimeError:  # torch's DistError is one
                self.has_failed = True
                return
            self._answered = time.monotonic()


def all_know_of_leave(link: Link, number: int, hosts: int) -> bool:
    """Return True if every host but host 0 has seen that a host was told to leave in a round, or a later round."""
    keys = [f"{SEEN}/{host}" for host in range(1, hosts)]
    if not link.store.check(keys):
        return False
    seen = [State.read(link.store.get(key)) for key in keys]
    return all(state.is_left or state.round > number for state in seen)


def read(link: Link) -> State:
    """Return the state that the store holds now."""
    return State.read(link.store.get(STATE))


def swap(link: Link, old: State, new: State) -> bool:
    """Replace the state if it is still the old one; return True if it was."""
    link.state = State.read(link.store.compare_set(STATE, old.text(), new.text()))
    return link.state == new


def bring_up_to_date(link: Link, known: State) -> None:
    """Begin the round that a host knows to come next, in a store that is new or where no other host has begun it."""
    while (found := read(link)).round < known.round and not found.over:
        swap(link, found, replace(known, restarts=max(known.restarts, found.restarts)))
