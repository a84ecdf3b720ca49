"""Agree with the other hosts of a job on the start, restart and end of its ranks.

A round is one start of all ranks. The launchers of all hosts join a round in a store on host 0. During the round they
poll the job's state in that store. The state counts the restarts of the whole job. Every launcher remembers the state,
and copies it into the empty store of a new host 0.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TypeVar

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore  # torch.distributed exports them without types
from torch.distributed.elastic.rendezvous.api import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

STATE_KEY = "state"
"""Key of the job's state in the store."""
SEEN_PREFIX = "seen"
"""Prefix of the keys with the last state that each host has seen. A host writes its key when the state changes."""
POLL_SECONDS = 0.2
"""Seconds between two polls of the state."""
POLL_SECONDS_PER_HOST = 0.002
"""Minimum seconds between two polls, per host of the job, so that the store answers at most 500 polls a second."""
CLOSE_SECONDS = 1.0
"""Maximum seconds to wait for a running poll when closing. The store of a dead node never answers."""
SILENCE_SECONDS = 30.0
"""Seconds without an answer after which the store counts as lost. A dead node does not close its connections."""
CONNECT_SECONDS = 10.0
"""Seconds of one attempt to connect. The next attempt resolves host 0's name again, because a new pod has a new
address."""
FIRST_FAILURE_GRACE_SECONDS = 3.0
"""Maximum seconds that a host whose ranks only lost other ranks waits for the host with the first failure."""
STORE_GRACE_SECONDS = 3.0
"""Maximum seconds that an ended or preempted host 0 keeps its store, so that every host can read the reason."""
PREEMPTION_NOTICE_SECONDS = 2.0
"""Maximum seconds that a preempted host takes to notify the other hosts."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class State:
    """The common state of all hosts."""

    round: int = 0
    """Number of the current round."""
    restarts: int = 0
    """Number of restarts so far, without those that do not count."""
    is_preempted: bool = False
    """True if a host was preempted during the round, so that the next restart does not count."""
    end_reason: str = ""
    """Reason why the job ended, or empty while it runs."""

    def text(self) -> str:
        """Return the state as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> State:
        """Parse the state from JSON."""
        return cls(**json.loads(text))

    def following(self, *, has_started: bool) -> State:
        """Return the state of the next round. The restart counts if the ranks had started and no host was preempted."""
        return State(round=self.round + 1, restarts=self.restarts + (has_started and not self.is_preempted))


class StoreConnection:
    """A connection to host 0's store, with a thread that polls the state over a second connection."""

    def __init__(self, store: TCPStore, poll_seconds: float, host: int) -> None:
        self.store = store
        self._host = host
        store.compare_set(STATE_KEY, "", State().text())
        self.state = State.read(store.get(STATE_KEY))
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
        """Stop polling. A thread that is inside torch when Python exits would abort the whole process."""
        self._stop.set()
        self._polling.join(CLOSE_SECONDS)

    def read(self) -> State:
        """Return the current state in the store."""
        return State.read(self.store.get(STATE_KEY))

    def swap(self, old: State, new: State) -> bool:
        """Replace the state in the store if it is still `old`. Return True if it was replaced."""
        self.state = State.read(self.store.compare_set(STATE_KEY, old.text(), new.text()))
        return self.state == new

    def bring_up_to_date(self, known: State) -> None:
        """Replace the store's state by `known` if `known` is of a later round and the job has not ended."""
        while (found := self.read()).round < known.round and not found.end_reason:
            self.swap(found, replace(known, restarts=max(known.restarts, found.restarts)))

    def all_know_of_preemption(self, round_number: int, hosts: int) -> bool:
        """Return True if every host but host 0 knows of a preemption, or is in a round after `round_number`."""
        keys = [f"{SEEN_PREFIX}/{host}" for host in range(1, hosts)]
        if not self.store.check(keys):
            return False
        seen = [State.read(self.store.get(key)) for key in keys]
        return all(state.is_preempted or state.round > round_number for state in seen)

    def _poll(self, store: Store) -> None:
        seen: State | None = None
        while not self._stop.wait(self._poll_seconds):
            try:
                found = State.read(store.get(STATE_KEY))
                if found != seen:
                    store.set(f"{SEEN_PREFIX}/{self._host}", found.text())
                self.state = seen = found
            except RuntimeError:  # torch's DistError is a RuntimeError
                self.has_failed = True
                return
            self._answered = time.monotonic()


class StoreLost(Exception):
    """The store of host 0 does not answer."""


class HostsMissing(Exception):
    """Not all hosts joined in time."""


class JobEnded(Exception):
    """A launcher ended the job. The message gives the reason."""

    def __init__(self, reason: str, *, is_mine: bool = False) -> None:
        super().__init__(reason)
        self.is_mine = is_mine
        """True if this host ended the job."""


class Rounds(StaticTCPRendezvous):
    """A host's part in the rounds. torchrun's agent gets the ranks' rendezvous from this object."""

    def __init__(
        self, *, address: str, port: int, host: int, hosts: int, run_id: str, max_restarts: int, join_seconds: float
    ) -> None:
        super().__init__(address, port, host, hosts, run_id, int(join_seconds))
        self._address, self._port, self.host, self.hosts = address, port, host, hosts
        self.max_restarts = max_restarts
        self._join_seconds = join_seconds
        self._identity = uuid.uuid4().hex
        self._servers: list[TCPStore] = []
        self._connection: StoreConnection | None = None
        self.joined = State(round=-1)
        """State of the round that this host joined last."""
        self._has_started = False
        self._is_preempted = False

    # Interface of torchrun's agent.

    def shutdown(self) -> bool:
        """Disconnect. A preempted host 0 first waits until the other hosts know it, for up to STORE_GRACE_SECONDS."""
        if self._is_preempted and self.host == 0:
            last = self.joined.round
            with suppress(StoreLost):
                _wait_until(
                    lambda: self._call(lambda connection: connection.all_know_of_preemption(last, self.hosts)),
                    STORE_GRACE_SECONDS,
                )
        if self._connection:
            self._connection.close()
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until all hosts have joined, and return the rendezvous of their ranks.

        Raises JobEnded, or HostsMissing if a host does not join in time.
        """
        deadline = time.monotonic() + self._join_seconds
        while True:
            try:
                self._connect(deadline)
                return self._join(deadline)
            except StoreLost:
                self._disconnect()

    # Interface of this host's agent during a round.

    @property
    def is_superseded(self) -> bool:
        """True if the current round is over for this host: another round started, the job ended, or host 0 is lost."""
        self._update_joined()
        connection = self._connection
        return (
            connection is None
            or connection.is_lost
            or connection.state.round > self.joined.round
            or bool(connection.state.end_reason)
        )

    def restart(self, reason: str, *, can_help: bool, is_own: bool) -> State:
        """Start another round because ranks of this host failed, and return its state. Raises JobEnded if the job ends.

        `can_help` is False if the same ranks would fail again. `is_own` is False if the ranks of this host only lost
        other ranks. Then the host with the first failure knows better why the job ends.
        """
        if can_help and not is_own and self.joined.restarts >= self.max_restarts:
            _wait_until(lambda: self.is_superseded or self.joined.is_preempted, FIRST_FAILURE_GRACE_SECONDS)
        try:
            return self._call(lambda connection: self._change(connection, reason, can_help=can_help))
        except StoreLost:
            self._disconnect()
            if not can_help:
                raise JobEnded(reason, is_mine=True) from None
            return self.joined.following(has_started=True)

    def announce_preemption(self) -> None:
        """Tell the other hosts that this host is preempted. A restart after a preemption does not count."""

        def mark(connection: StoreConnection) -> None:
            while (state := connection.read()).round == self.joined.round and not (
                state.is_preempted or state.end_reason
            ):
                connection.swap(state, replace(state, is_preempted=True))

        self._is_preempted = True
        with suppress(StoreLost):
            self._call(mark, seconds=PREEMPTION_NOTICE_SECONDS)

    def finish(self) -> bool:
        """Wait until the ranks of all hosts are done, however long. Return False if `is_superseded`.

        If host 0 left earlier, its store would end, and the ranks of the other hosts would fail.
        """
        done = [f"{self.joined.round}/done/{host}" for host in range(self.hosts)]
        with suppress(StoreLost):
            self._call(lambda connection: connection.store.set(done[self.host], "1"))
            while not self._call(lambda connection: connection.store.check(done)):
                if self.is_superseded:
                    return False
                time.sleep(POLL_SECONDS)
        self.end()
        return True

    def end(self) -> None:
        """Stop polling. Host 0 keeps its store until every host has stopped polling, for up to STORE_GRACE_SECONDS."""
        keys = [f"over/{host}" for host in range(self.hosts)]
        if self._connection:
            self._connection.close()
        with suppress(StoreLost):
            self._call(lambda connection: connection.store.set(keys[self.host], "1"))
            if self.host == 0:
                _wait_until(lambda: self._call(lambda connection: connection.store.check(keys)), STORE_GRACE_SECONDS)

    # Implementation.

    def _connect(self, deadline: float) -> None:
        """Connect to host 0's store. If the store is behind this host's next round, copy that round's state into it."""
        while self._connection is None:
            known = self.joined.following(has_started=self._has_started)
            if known.restarts > self.max_restarts:
                raise JobEnded(f"host 0 was lost; {self._no_restart_left}", is_mine=True)
            if time.monotonic() > deadline:
                raise HostsMissing(f"host 0 ({self._address}:{self._port}) does not answer; check its pod")
            try:
                self._connection = StoreConnection(
                    self._open_store(), max(POLL_SECONDS, self.hosts * POLL_SECONDS_PER_HOST), self.host
                )
            except RuntimeError:  # torch's DistError is a RuntimeError
                time.sleep(POLL_SECONDS)
                continue
            self._call(lambda connection, known=known: connection.bring_up_to_date(known))  # type: ignore[misc]  # mypy cannot infer the lambda

    def _open_store(self) -> TCPStore:
        store = TCPStore(
            self._address,
            self._port,
            is_master=self.host == 0,
            timeout=timedelta(seconds=CONNECT_SECONDS),
            wait_for_workers=False,
            multi_tenant=True,
        )
        if self.host == 0:
            self._servers.append(store)
        return store

    def _disconnect(self) -> None:
        if self._connection:
            self._update_joined()
            self._connection.close()
        self._connection = None

    def _update_joined(self) -> None:
        """Remember the current state of the round that this host has joined."""
        if self._connection and self._connection.state.round == self.joined.round:
            self.joined = self._connection.state

    def _call(self, request: Callable[[StoreConnection], Answer], seconds: float = SILENCE_SECONDS) -> Answer:
        """Return the answer of the store to a request. Raises StoreLost if there is none.

        A thread sends the request, because a call to a dead node would keep this process from handling signals.
        """
        connection = self._connection
        if connection is None or connection.is_lost:
            raise StoreLost
        answer: Future[Answer] = Future()

        def call() -> None:
            try:
                answer.set_result(request(connection))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        try:
            return answer.result(seconds)
        except (RuntimeError, TimeoutError) as error:  # torch's DistError is a RuntimeError
            raise StoreLost from error

    @property
    def _no_restart_left(self) -> str:
        return f"the job has no restart left (restarts: {self.max_restarts})"

    def _change(self, connection: StoreConnection, reason: str, *, can_help: bool) -> State:
        """Start the next round unless it has started, and return its state. Raises JobEnded if the job has ended."""
        while not (state := connection.read()).end_reason:
            if state.round > self.joined.round and can_help:
                return state
            following = state.following(has_started=connection.store.check([f"{state.round}/started"]))
            if can_help and following.restarts <= self.max_restarts:
                connection.swap(state, following)
                continue
            end_reason = f"{reason}; {self._no_restart_left}" if can_help else reason
            if connection.swap(state, replace(state, end_reason=end_reason)):
                raise JobEnded(end_reason, is_mine=True)
        raise JobEnded(state.end_reason)

    def _join(self, deadline: float) -> RendezvousInfo:
        """Wait until all hosts have joined the same round, and return the rendezvous of its ranks."""
        while not (state := self._call(StoreConnection.read)).end_reason:
            self.joined, self._has_started = state, False
            key = f"{state.round}/host/{self.host}"
            found = self._call(lambda connection, key=key: connection.store.compare_set(key, "", self._identity))  # type: ignore[misc]  # mypy cannot infer the lambda
            if found.decode() != self._identity:
                # An earlier launcher of this host was in the round. It is gone with its ranks.
                self._call(lambda connection: self._change(connection, f"host {self.host} was lost", can_help=True))
                continue
            if self.host == 0:
                self._serve_ranks(state)
            if self._is_complete(state, deadline):
                return self._start(state)
        raise JobEnded(state.end_reason)

    def _start(self, state: State) -> RendezvousInfo:
        port = int(self._call(lambda connection: connection.store.get(f"{state.round}/port")))
        self._call(lambda connection: connection.store.set(f"{state.round}/started", "1"))
        self._has_started = True
        assert self._connection
        store = PrefixStore(f"{state.round}", self._connection.store)
        return RendezvousInfo(store, self.host, self.hosts, RendezvousStoreInfo(self._address, port))

    def _is_complete(self, state: State, deadline: float) -> bool:
        """Wait until all hosts have joined. Return False if `is_superseded`. Raises HostsMissing at the deadline."""
        keys = [f"{state.round}/host/{host}" for host in range(self.hosts)]
        while not self._call(lambda connection: connection.store.check([*keys, f"{state.round}/port"])):
            if self.is_superseded:
                return False
            if time.monotonic() > deadline:
                joined = [self._call(lambda connection, key=key: connection.store.check([key])) for key in keys]  # type: ignore[misc]  # mypy cannot infer the lambda
                missing = [str(host) for host, has_joined in enumerate(joined) if not has_joined]
                raise HostsMissing(f"hosts that did not join: {', '.join(missing)}; check their pods")
            time.sleep(POLL_SECONDS / 2)
        return True

    def _serve_ranks(self, state: State) -> None:
        """Create a new store for the ranks of a round, so that they do not read keys of earlier ranks."""
        server = TCPStore(self._address, 0, is_master=True, wait_for_workers=False)
        self._servers[1:] = [server]
        self._call(lambda connection: connection.store.set(f"{state.round}/port", str(server.port)))


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(POLL_SECONDS / 4)
