"""The network check measures the link of every pair of hosts. If all links are fast, the check runs a program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.trainer.network_check import allreduce_gigabits, parse, rounds_of_pairs
from tests.trainer.processes import RunResult, started
from trainer.exit_codes import SLOW_LINK


@given(st.integers(1, 40))
def test_rounds_of_pairs_have_every_pair_once_and_no_host_twice_per_round(hosts: int) -> None:
    rounds = list(rounds_of_pairs(hosts))
    pairs = [pair for each in rounds for pair in each]
    assert sorted(pairs) == [(a, b) for a in range(hosts) for b in range(a + 1, hosts)]
    for each in rounds:
        busy = [host for pair in each for host in pair]
        assert len(busy) == len(set(busy))


def test_allreduce_gigabits_are_the_bus_bandwidth_of_nccl_tests() -> None:
    assert allreduce_gigabits(10**9, 2, 1.0) == pytest.approx(8.0)
    assert allreduce_gigabits(10**9, 1000, 1.0) == pytest.approx(16.0, rel=0.01)


def test_arguments_after_two_dashes_are_the_program() -> None:
    options = parse(["--min-bandwidth-gbps=2.5", "--", "-m", "trainer", "digits", "--repetitions=3"])
    assert (options.min_bandwidth_gbps, options.repetitions) == (2.5, 5)
    assert options.program == ["-m", "trainer", "digits", "--repetitions=3"]


def check_then_train(min_bandwidth_gbps: float, digits: Path, *codes: int) -> RunResult:
    """Run the check and the training on two hosts with two ranks each. Assert the exit codes of the hosts."""
    # `started` passes `recipe` as the first argument of the program.
    with started(
        *("--megabytes=2", "--repetitions=2", "--", "-m", "trainer", "digits", "--epochs=1"),
        recipe=f"--min-bandwidth-gbps={min_bandwidth_gbps}",
        program="images.trainer.network_check",
        hosts=2,
        processes=2,
        data=digits,
    ) as running:
        return running.end(*codes)


def test_good_links_are_printed_and_training_runs(digits: Path) -> None:
    result = check_then_train(0.001, digits, 0, 0)
    assert re.search(r"^link hosts=0-1 gigabits=[\d.]+$", result.output, re.M)
    assert re.search(r"^allreduce ranks=4 ", result.output, re.M)
    assert result.events("done")


def test_slow_link_ends_job_before_training(digits: Path) -> None:
    result = check_then_train(100_000, digits, SLOW_LINK, SLOW_LINK)
    assert "error: the slowest link has" in result.output
    assert not result.events("train")
