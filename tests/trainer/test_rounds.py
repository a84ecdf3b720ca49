"""The launchers of all hosts agree on restarts. Here a launcher is a thread without ranks; the store is torch's own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from torch._C._distributed_c10d import TCPStore

from bench.measure import free_port
from trainer.restarts.rounds import JobEnded, Rounds, State

WAIT_LIMIT_SECONDS = 120
HOST_PROGRAM = """
import sys, time
from trainer.restarts.rounds import JobEnded, Rounds
host, port, hosts, restarts = map(int, sys.argv[1:])
rounds = Rounds(
    address="127.0.0.1", port=port, host=host, hosts=hosts, run_id="job", max_restarts=restarts, join_seconds=120
)
print("up", flush=True)
while True:
    rounds.next_rendezvous()
    print(rounds.joined.round, rounds.joined.restarts, flush=True)
    while not rounds.is_superseded:
        time.sleep(0.01)
"""
"""Program of a host that only joins rounds. A test can kill its process."""


class Hosts:
    """The launchers of a job."""

    def __init__(self, hosts: int, restarts: int, *, omitted: int | None = None) -> None:
        self.port, self.num_hosts, self.restarts = free_port(), hosts, restarts
        self.pool = ThreadPoolExecutor(hosts)
        self.launchers = {host: self.new_launcher(host) for host in range(hosts) if host != omitted}

    def new_launcher(self, host: int) -> Rounds:
        return Rounds(
            address="127.0.0.1",
            port=self.port,
            host=host,
            hosts=self.num_hosts,
            run_id="job",
            max_restarts=self.restarts,
            join_seconds=WAIT_LIMIT_SECONDS,
        )

    def call_all(self, act: Callable[[Rounds], object]) -> list[Future[object]]:
        """Call a function with every launcher, each in a thread."""
        return [self.pool.submit(act, launcher) for launcher in self.launchers.values()]

    def join_round(self) -> State:
        """Wait until all hosts are in the same round, and return its state."""
        for joined in self.call_all(Rounds.next_rendezvous):
            joined.result(WAIT_LIMIT_SECONDS)
        (state,) = {(launcher.joined.round, launcher.joined.restarts) for launcher in self.launchers.values()}
        return State(round=state[0], restarts=state[1])

    def wait_until_superseded(self, *hosts: int) -> None:
        """Wait until the current round is over for these hosts."""
        self.wait_until(lambda: all(self.launchers[host].is_superseded for host in hosts))

    def has_joined(self, host: int) -> bool:
        """Return True if this host has joined the first round."""
        try:
            store = TCPStore("127.0.0.1", self.port, is_master=False, wait_for_workers=False)
        except RuntimeError:  # host 0 has not started yet
            return False
        return store.check([f"0/host/{host}"])

    def wait_until(self, condition: Callable[[], bool]) -> None:
        waiting, deadline = threading.Event(), time.monotonic() + WAIT_LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline
            waiting.wait(0.01)


@contextmanager
def job(hosts: int, restarts: int, *, omitted: int | None = None) -> Iterator[Hosts]:
    """Start the launchers of a job, except for the omitted host. Shut the launchers down at the end."""
    found = Hosts(hosts, restarts, omitted=omitted)
    yield found
    for launcher in found.launchers.values():
        launcher.shutdown()
    found.pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def process_of(host: int, hosts: Hosts) -> Iterator[subprocess.Popen[str]]:
    """Run HOST_PROGRAM as a host, and kill it at the end."""
    words = [sys.executable, "-c", HOST_PROGRAM, str(host), str(hosts.port), str(hosts.num_hosts), str(hosts.restarts)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("num_hosts", [1, 2, 8, 64])
def test_failure_on_one_host_restarts_all_hosts_and_counts_once(num_hosts: int) -> None:
    with job(num_hosts, restarts=3) as hosts:
        assert hosts.join_round() == State(round=0)
        for restart in (1, 2, 3):
            hosts.launchers[num_hosts - 1].restart("rank ended", can_help=True, is_own=True)
            hosts.wait_until_superseded(*hosts.launchers)
            assert hosts.join_round() == State(round=restart, restarts=restart)


@pytest.mark.parametrize("num_hosts", [2, 64])
def test_failures_of_all_hosts_count_once(num_hosts: int) -> None:
    with job(num_hosts, restarts=1) as hosts:
        hosts.join_round()
        for restarted in hosts.call_all(lambda launcher: launcher.restart("rank ended", can_help=True, is_own=True)):
            assert restarted.result(WAIT_LIMIT_SECONDS) == State(round=1, restarts=1)
        assert hosts.join_round() == State(round=1, restarts=1)


def test_job_ends_on_every_host_when_restarts_are_used_up() -> None:
    with job(4, restarts=1) as hosts:
        hosts.join_round()
        hosts.launchers[1].restart("rank 1 ended", can_help=True, is_own=True)
        hosts.join_round()
        with pytest.raises(JobEnded, match="rank 2 ended; the job has no restart left \\(restarts: 1\\)") as caught:
            hosts.launchers[2].restart("rank 2 ended", can_help=True, is_own=True)
        assert caught.value.is_mine
        hosts.wait_until_superseded(*hosts.launchers)
        for host in (0, 1, 3):
            with pytest.raises(JobEnded, match="rank 2 ended; the job has no restart left") as caught:
                hosts.launchers[host].next_rendezvous()
            assert not caught.value.is_mine


def test_host_whose_peer_fails_reports_the_failure_of_the_peer() -> None:
    with job(2, restarts=1) as hosts:
        hosts.join_round()
        hosts.launchers[1].restart("first", can_help=True, is_own=True)
        hosts.join_round()
        waiting = hosts.pool.submit(hosts.launchers[0].restart, "its peer left", can_help=True, is_own=False)
        with pytest.raises(JobEnded) as caught:
            hosts.launchers[1].restart("rank 1 ended with signal 9", can_help=True, is_own=True)
        assert caught.value.is_mine
        with pytest.raises(JobEnded, match="rank 1 ended with signal 9"):
            waiting.result(WAIT_LIMIT_SECONDS)


def test_failure_that_a_restart_cannot_help_ends_job_even_after_a_new_round() -> None:
    with job(2, restarts=3) as hosts:
        hosts.join_round()
        hosts.launchers[0].restart("its peer left", can_help=True, is_own=False)
        with pytest.raises(JobEnded, match="diverged"):
            hosts.launchers[1].restart("diverged", can_help=False, is_own=True)
        with pytest.raises(JobEnded, match="diverged"):
            hosts.launchers[0].next_rendezvous()


def test_preempted_host_costs_no_restart() -> None:
    with job(3, restarts=1) as hosts:
        hosts.join_round()
        hosts.launchers[2].announce_preemption()
        hosts.launchers[0].restart("its peer left", can_help=True, is_own=False)
        hosts.launchers[2] = hosts.new_launcher(2)
        assert hosts.join_round() == State(round=1, restarts=0)


def test_preempted_host_0_waits_until_others_know_of_the_preemption() -> None:
    with job(3, restarts=1) as hosts:
        hosts.join_round()
        hosts.launchers[0].announce_preemption()
        hosts.launchers[0].shutdown()
        for host in (1, 2):
            assert not hosts.launchers[host].is_superseded
            assert hosts.launchers[host].joined.is_preempted


def test_new_launcher_of_a_host_starts_a_round() -> None:
    with job(3, restarts=2) as hosts:
        hosts.join_round()
        hosts.launchers[1] = hosts.new_launcher(1)
        new = hosts.pool.submit(hosts.launchers[1].next_rendezvous)
        hosts.wait_until_superseded(0, 2)
        others = [hosts.pool.submit(hosts.launchers[host].next_rendezvous) for host in (0, 2)]
        for joined in (new, *others):
            joined.result(WAIT_LIMIT_SECONDS)
        assert {launcher.joined for launcher in hosts.launchers.values()} == {State(round=1, restarts=1)}


def test_launcher_lost_before_start_costs_no_restart() -> None:
    with job(3, restarts=1, omitted=1) as hosts:
        first = hosts.pool.submit(hosts.launchers[0].next_rendezvous)
        with process_of(1, hosts) as lost:
            hosts.wait_until(lambda: hosts.has_joined(1))
            lost.kill()
        hosts.launchers[1] = hosts.new_launcher(1)
        second = hosts.pool.submit(hosts.launchers[1].next_rendezvous)
        # Wait for the next round. Before the next round, host 2 would find the first round complete.
        hosts.wait_until(lambda: hosts.launchers[1].joined.round == 1)
        for joined in (first, second, hosts.pool.submit(hosts.launchers[2].next_rendezvous)):
            joined.result(WAIT_LIMIT_SECONDS)
        assert {launcher.joined for launcher in hosts.launchers.values()} == {State(round=1, restarts=0)}


def test_new_host_0_gets_round_and_restart_count_from_the_others() -> None:
    with job(3, restarts=3, omitted=0) as hosts:
        with process_of(0, hosts) as first:
            assert hosts.join_round() == State(round=0)
            hosts.launchers[1].restart("rank ended", can_help=True, is_own=True)
            assert hosts.join_round() == State(round=1, restarts=1)
            first.kill()
            hosts.wait_until_superseded(1, 2)
        with process_of(0, hosts) as second:
            assert hosts.join_round() == State(round=2, restarts=2)
            assert second.stdout
            assert [second.stdout.readline().strip() for _ in range(2)] == ["up", "2 2"]


def test_lost_host_0_ends_job_without_restarts() -> None:
    with job(2, restarts=1, omitted=0) as hosts:
        with process_of(0, hosts) as first:
            hosts.join_round()
            hosts.launchers[1].restart("rank ended", can_help=True, is_own=True)
            hosts.join_round()
            first.kill()
            hosts.wait_until_superseded(1)
        with pytest.raises(JobEnded, match="host 0 was lost; the job has no restart left") as caught:
            hosts.launchers[1].next_rendezvous()
        assert caught.value.is_mine


def test_finished_hosts_wait_and_rejoin_after_a_failure() -> None:
    with job(2, restarts=1) as hosts:
        hosts.join_round()
        done = hosts.pool.submit(hosts.launchers[0].finish)
        hosts.launchers[1].restart("rank ended", can_help=True, is_own=True)
        assert done.result(WAIT_LIMIT_SECONDS) is False
        assert hosts.join_round() == State(round=1, restarts=1)
        assert [finished.result(WAIT_LIMIT_SECONDS) for finished in hosts.call_all(Rounds.finish)] == [True, True]
