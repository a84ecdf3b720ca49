"""The store of host 0's launcher: the common state of all hosts, and how a host reads and changes it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass, replace

from torch._C._distributed_c10d import Store, TCPStore  # torch.distributed's own; exported there without types

STATE = "state"
"""Key of the job's state in the store."""
SEEN = "seen"
"""Prefix of the keys with the last state that each host has seen. A host writes its key when the state changes."""
POLL_SECONDS = 0.2
"""Seconds between two polls of the state."""
POLL_SECONDS_PER_HOST = 0.002
"""Additional seconds between two polls per host, so that the store answers at most 500 polls a second."""
CLOSE_SECONDS = 1.0
"""Seconds to wait for a running poll when closing, because the store of a dead node never answers it."""
SILENCE_SECONDS = 30.0
"""Seconds without an answer after which the store counts as lost, because a dead node closes no connection."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The common state of all hosts."""

    round: int = 0
    """Number of the current round."""
    restarts: int = 0
    """Number of restarts that count."""
    is_preempted: bool = False
    """True if a host was preempted during the round, so that the next restart does not count."""
    over: str = ""
    """Reason why the job ended, or empty while it runs."""

    def text(self) -> str:
        """Return the state as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> State:
        """Parse the state from JSON."""
        return cls(**json.loads(text))

    def following(self, *, has_started: bool) -> State:
        """Return the state of the next round. Only a round whose ranks were started can use up a restart."""
        return State(round=self.round + 1, restarts=self.restarts + (has_started and not self.is_preempted))


class Link:
    """A connection to host 0's store, with a thread that polls the state over a second connection."""

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
        """True if the store is gone or has been silent for too long."""
        return self.has_failed or time.monotonic() - self._answered > SILENCE_SECONDS

    def close(self) -> None:
        """Stop polling.

        Python kills running threads at exit, and a thread inside torch then aborts the whole process.
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


def all_know_of_preemption(link: Link, number: int, hosts: int) -> bool:
    """Return True if every host but host 0 knows of the preemption in a round, or is in a later round."""
    keys = [f"{SEEN}/{host}" for host in range(1, hosts)]
    if not link.store.check(keys):
        return False
    seen = [State.read(link.store.get(key)) for key in keys]
    return all(state.is_preempted or state.round > number for state in seen)


def read(link: Link) -> State:
    """Return the current state in the store."""
    return State.read(link.store.get(STATE))


def swap(link: Link, old: State, new: State) -> bool:
    """Replace the state if it is still the old one. Returns True if it was replaced."""
    link.state = State.read(link.store.compare_set(STATE, old.text(), new.text()))
    return link.state == new


def bring_up_to_date(link: Link, known: State) -> None:
    """Start the next round that a host knows of, unless the store already has it."""
    while (found := read(link)).round < known.round and not found.over:
        swap(link, found, replace(known, restarts=max(known.restarts, found.restarts)))
