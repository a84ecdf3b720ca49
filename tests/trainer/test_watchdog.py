"""A rank that hangs ends the job with stack traces and the rank's number. A slow rank is reported."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from torch import distributed

from tests.trainer.language import MODEL
from tests.trainer.processes import ActiveRun, RunResult, started
from tests.trainer.recipes import Recipe
from trainer.exit_codes import DONE, HANG, PREEMPTED
from trainer.runtime import Runtime
from trainer.watchdog import SLOW_RATIO, SLOW_WINDOWS, WINDOW_SECONDS, Heartbeat, Stragglers, wait_for_ranks

ENDLESS_FLAGS = ("--epochs=1000", "--batch-size=8", "--log-steps=5", "--process-group-timeout=4")
SPEEDUP = 5
"""Factor by which some tests shorten the windows in which ranks are compared."""
SHORT_WINDOW = f"trainer.watchdog.WINDOW_SECONDS={WINDOW_SECONDS / SPEEDUP}"
"""Argument of `tests.trainer.faulty` that shortens these windows."""


def two_hosts(
    recipe: Recipe, *flags: str, bucket: Path | None = None, program: str = "trainer"
) -> AbstractContextManager[ActiveRun]:
    return recipe.started(*flags, bucket=bucket, hosts=2, processes=1, program=program)


def test_sleeping_rank_makes_all_ranks_print_stacks_and_exit(recipe: Recipe) -> None:
    with two_hosts(recipe, *ENDLESS_FLAGS, program="tests.trainer.faulty sleep 1") as running:
        running.wait_for("train epoch=1 step=20/")
        result = running.end(HANG, HANG)
    assert result.output.count("did not answer within 4 s: rank 1 made the least progress") == 2, result.output
    assert result.output.count("most recent call first") >= 2
    assert "in faulty" in result.output
    assert 'loop.py", line' in result.output


def test_first_step_may_take_longer_than_the_timeout(recipe: Recipe) -> None:
    program = "tests.trainer.faulty late 1 trainer.runtime.base.TIMEOUT_SLACK_SECONDS=1"
    with two_hosts(recipe, "--epochs=1", "--process-group-timeout=4", program=program) as running:
        result = running.end(DONE, DONE)
    assert "did not answer" not in result.output


LOADING_PROGRAM = (
    "tests.trainer.faulty loading 1 trainer.watchdog.SETUP_SECONDS=4 trainer.runtime.base.SETUP_SECONDS=4 "
    "trainer.runtime.base.TIMEOUT_SLACK_SECONDS=1 trainer.watchdog.GONE_SECONDS=2"
)
"""Program of a run whose rank 1 loads its data for longer than the time-out."""


@pytest.mark.parametrize("is_killed", [False, True])
def test_rank_waits_for_a_rank_that_loads_data_until_that_rank_is_gone(
    is_killed: bool, both_recipes: dict[str, Recipe]
) -> None:
    flags = ("--epochs=1", "--process-group-timeout=4")
    with two_hosts(both_recipes["digits"], *flags, program=LOADING_PROGRAM) as running:
        if is_killed:
            running.wait_for_host(1, "loading")
            os.killpg(running.hosts[1].pid, signal.SIGKILL)
        result = running.end()
    assert result.codes == ([PREEMPTED, -signal.SIGKILL] if is_killed else [DONE, DONE]), result.output


def test_waiting_ranks_do_not_count_as_progress_of_a_stopped_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.watchdog.GONE_SECONDS", 0.3)
    monkeypatch.setattr("trainer.watchdog.MAX_POLL_SECONDS", 0.02)
    store, progress = vars(distributed)["HashStore"](), [0, 0]
    store.set("heartbeat/2", Heartbeat(polls=5, progress=7).text())

    def wait(rank: int) -> None:
        def heartbeat() -> None:
            progress[rank] += 1
            store.set(f"heartbeat/{rank}", Heartbeat(polls=progress[rank], progress=progress[rank]).text())

        heartbeat()
        wait_for_ranks(cast("Runtime", SimpleNamespace(store=store, rank=rank, world=3, heartbeat=heartbeat)), "data")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(wait, range(2)))
    assert max(progress) <= 3, progress


def test_wait_for_ranks_checks_all_lost_ranks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.watchdog.GONE_SECONDS", 0.3)
    monkeypatch.setattr("trainer.watchdog.MAX_POLL_SECONDS", 0.02)
    store, heartbeats = vars(distributed)["HashStore"](), list[int]()
    for rank in range(50):
        store.set(f"heartbeat/{rank}", Heartbeat(polls=5, progress=7).text())
    runtime = SimpleNamespace(store=store, rank=0, world=50, heartbeat=lambda: heartbeats.append(1))
    began = time.monotonic()
    wait_for_ranks(cast("Runtime", runtime), "data")
    assert time.monotonic() - began < 5, "the wait must not take 0.3 s for each lost rank"
    assert not heartbeats


def test_sleeping_rank_without_store_exits(recipe: Recipe) -> None:
    with two_hosts(recipe, *ENDLESS_FLAGS, program="tests.trainer.faulty sleep 1") as running:
        for host in (0, 1):  # rank 1 must sleep before it loses its peer
            running.wait_for_host(host, "train epoch=1 step=20/")
        os.killpg(running.hosts[0].pid, signal.SIGKILL)
        result = running.end()
    assert result.codes[1] == HANG, result.output
    assert "the watchdog has lost the other ranks" in result.output
    assert "its training makes no progress (rank 1, exit code 70)" in result.output


def stop_rank_1(running: ActiveRun) -> RunResult:
    """Stop the process of rank 1 with SIGSTOP. Return the result of the run, after rank 0 has reported a hang."""
    pid = running.rank_pid(1)
    os.kill(pid, signal.SIGSTOP)
    running.hosts[0].wait(timeout=60)
    os.kill(pid, signal.SIGKILL)
    result = running.end()
    assert result.codes[0] == HANG, result.output
    return result


def test_stopped_process_is_reported(recipe: Recipe) -> None:
    with two_hosts(recipe, *ENDLESS_FLAGS) as running:
        running.wait_for("train epoch=2")
        result = stop_rank_1(running)
    assert "the process of rank 1 is stopped" in result.output
    assert 'loop.py", line' in result.output


def test_rank_stopped_during_a_save_ends_the_job(tmp_path: Path, recipe: Recipe) -> None:
    program = "tests.trainer.faulty none 0 trainer.runtime.base.TIMEOUT_SLACK_SECONDS=1"
    with two_hosts(recipe, *ENDLESS_FLAGS, "--checkpoint-steps=1", bucket=tmp_path, program=program) as running:
        running.wait_for("train epoch=1 step=10/")  # the short time-out applies after two lines
        running.wait_for("checkpoint ")
        result = stop_rank_1(running)
    assert "a rank did not answer " in result.output


RESNET = ("imagenet", "--arch=resnet18", "--image-size=32", "--batch-size=8", "--steps-per-epoch=1000")
"""Recipe and flags of a model with batch statistics. If each step synchronized them, every rank would be slow."""
LANGUAGE = ("language", *MODEL, "--sample-tokens=0", "--batch-size=8")
"""Recipe and flags of a language model."""


@pytest.mark.parametrize(
    ("rank", "recipe_and_flags"), [(1, ("digits",)), (0, RESNET), (1, LANGUAGE)], ids=["digits", "imagenet", "language"]
)
def test_rank_that_is_three_times_as_slow_is_reported(
    rank: int, recipe_and_flags: tuple[str, ...], both_recipes: dict[str, Recipe]
) -> None:
    recipe, *flags = recipe_and_flags
    with started(
        *("--epochs=1000", "--log-steps=5", *flags),
        hosts=2,
        processes=1,
        data=both_recipes["language" if recipe == "language" else "digits"].data,
        recipe=recipe,
        program=f"tests.trainer.faulty slow {rank} {SHORT_WINDOW}",
    ) as running:
        line = running.wait_for("straggler")
    assert f"slow_rank={rank} " in line


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_run_without_faults_reports_no_straggler(seed: int, recipe: Recipe) -> None:
    flags = ("--epochs=1000", "--log-steps=5", f"--seed={seed}")
    with two_hosts(recipe, *flags, program=f"tests.trainer.faulty none 0 {SHORT_WINDOW}") as running:
        running.wait_for("train ")
        # Run for longer than the watchdog needs to report a slow rank.
        deadline = time.monotonic() + (SLOW_WINDOWS + 2) * WINDOW_SECONDS / SPEEDUP
        while time.monotonic() < deadline:
            running.wait_for("test ")
        os.kill(running.rank_pid(1), signal.SIGTERM)
        result = running.end(PREEMPTED, PREEMPTED)
    assert "no checkpoint was saved because --bucket is not set" in result.output
    assert result.events("straggler") == []


def heartbeats(steps: int, *seconds_per_step: float) -> list[Heartbeat]:
    """Return a heartbeat of each rank: after this number of steps, with these seconds per step."""
    return [Heartbeat(steps=steps, seconds=steps * per_step) for per_step in seconds_per_step]


def test_stragglers_report_rank_that_stays_slow() -> None:
    reports = []
    stragglers = Stragglers(3)
    for window in range(1, 2 * SLOW_WINDOWS + 1):
        reports += stragglers.update(
            heartbeats(10 * window, 0.1, 0.1 * SLOW_RATIO * 1.1, 0.1), window * WINDOW_SECONDS * 1.1
        )
    assert [rank for rank, _ in reports] == [1, 1]
    assert all(abs(ratio - SLOW_RATIO * 1.1) < 0.01 for _, ratio in reports)


def test_stragglers_ignore_occasional_slow_windows() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        stragglers = Stragglers(4)
        seconds = [0.0] * 4
        for window in range(1, 200):
            # Each rank is sometimes twice as slow for a window, for example because of a checkpoint.
            seconds = [one + 10 * rng.gauss(0.1, 0.005) * (2 if rng.random() < 0.05 else 1) for one in seconds]
            now = [Heartbeat(steps=10 * window, seconds=one) for one in seconds]
            assert stragglers.update(now, window * WINDOW_SECONDS * 1.1) == []


def test_stragglers_wait_until_all_ranks_have_steps() -> None:
    stragglers = Stragglers(2)
    now = [Heartbeat(steps=10, seconds=1), Heartbeat(steps=0, seconds=0)]
    assert all(stragglers.update(now, window * WINDOW_SECONDS * 2) == [] for window in range(5))
