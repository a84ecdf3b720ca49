"""Killed ranks and hosts: the launchers of the other hosts keep running, and training continues.

A host is a launcher on this machine. In a cluster, a pod does not fail while its launcher runs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainer.processes import ActiveRun, RunResult, started
from tests.trainer.recipes import Recipe
from tests.trainer.test_training import LAST_STEP, TWO_RANK_FLAGS, assert_same, checkpoint_at
from trainer.exit_codes import BAD_CONFIGURATION, DONE, PREEMPTED, RESTARTS_USED

SIGKILL_EXIT_CODE = 256 - signal.SIGKILL
"""Exit code of a launcher after a rank of its host was killed."""
ENDLESS = ("--epochs=1000000", "--log-steps=1", "--checkpoint-steps=5", "--batch-size=8")


def steps(result: RunResult, name: str) -> list[int]:
    """Return the steps in rank 0's events of one name."""
    return [int(event["step"]) for event in result.events(name) if event["rank"].startswith("0/")]


def assert_no_step_lost(result: RunResult) -> None:
    """Assert that rank 0 resumes from the last reported checkpoint or a later one.

    A killed rank 0 may not have reported its last checkpoint.
    """
    newest = 0
    for line in result.output.splitlines():
        name, *words = line.split() or [""]
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        if name in ("checkpoint", "resume") and fields["rank"].startswith("0/"):
            assert int(fields["step"]) >= newest, line
            newest = int(fields["step"])


def kill(running: ActiveRun, ranks: Sequence[int]) -> None:
    """Wait for a checkpoint, then kill these ranks at the same time."""
    running.wait_for("checkpoint ")
    for pid in [running.rank_pid(rank) for rank in ranks]:
        os.kill(pid, signal.SIGKILL)


def assert_continues(running: ActiveRun) -> None:
    """Wait until rank 0 has resumed and trains, and assert that no launcher has ended."""
    running.wait_for("resume ")
    running.wait_for("train ")
    assert [host.poll() for host in running.hosts] == [None] * len(running.hosts)


@pytest.mark.parametrize(
    ("name", "hosts", "kills"),
    [
        ("digits", 2, ([1], [0], [0, 1])),
        ("digits", 4, ([3], [1, 2])),
        ("digits", 8, ([7],)),
        ("language", 2, ([1], [0], [0, 1])),
        ("language", 4, ([3], [1, 2])),
    ],
    ids=["digits-2", "digits-4", "digits-8", "language-2", "language-4"],
)
def test_killed_ranks_restart_while_all_launchers_stay(
    name: str, hosts: int, kills: Sequence[Sequence[int]], tmp_path: Path, both_recipes: dict[str, Recipe]
) -> None:
    recipe, restarts = both_recipes[name], len(kills)
    with recipe.started(*ENDLESS, bucket=tmp_path, hosts=hosts, processes=1, restarts=restarts) as running:
        for ranks in kills:
            kill(running, ranks)
            assert_continues(running)
        os.kill(running.rank_pid(hosts - 1), signal.SIGTERM)
        result = running.end()
    # No restart is left. The codes depend on which host notices the preemption first.
    assert set(result.codes) <= {PREEMPTED, RESTARTS_USED}, result.output
    assert len(result.events("resume")) == hosts * len(kills)
    assert_no_step_lost(result)


def test_restarts_in_place_end_with_the_same_result(tmp_path: Path, recipe: Recipe) -> None:
    whole = tmp_path / "undisturbed"
    recipe.run(*TWO_RANK_FLAGS, bucket=whole, hosts=2, processes=1)
    with recipe.started(*TWO_RANK_FLAGS, bucket=tmp_path, hosts=2, processes=1, restarts=2) as running:
        for ranks in ([1], [0]):
            kill(running, ranks)
            running.wait_for("resume ")
        running.end(DONE, DONE)
    assert_same(checkpoint_at(tmp_path, LAST_STEP), checkpoint_at(whole, LAST_STEP))


def test_rank_killed_beyond_restarts_ends_job(tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started(*ENDLESS, bucket=tmp_path, hosts=2, processes=1, restarts=1) as running:
        kill(running, [1])
        assert_continues(running)
        kill(running, [1])
        result = running.end(PREEMPTED, SIGKILL_EXIT_CODE)
    assert "error: rank 1 ended with signal 9; the job has no restart left (restarts: 1)" in result.output
    assert "another host ended the job: rank 1 ended with signal 9" in result.output


def test_rank_with_non_retryable_exit_code_ends_job(digits: Path) -> None:
    with started("--no-such-flag", hosts=2, processes=1, restarts=5, data=digits, recipe="digits") as running:
        result = running.end()
    assert BAD_CONFIGURATION in result.codes, result.output
    assert set(result.codes) <= {BAD_CONFIGURATION, PREEMPTED}
    assert "restart number=" not in result.output


@pytest.mark.parametrize("host", [1, 0])
def test_launchers_wait_for_a_lost_host(host: int, tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started(*TWO_RANK_FLAGS, bucket=tmp_path, hosts=2, processes=1, restarts=1) as running:
        running.wait_for("checkpoint ")
        running.lose_host(host)
        running.start_host(host)
        running.wait_for_host(host, "resume ")
        running.end(DONE, DONE)


def test_preempted_host_costs_no_restart(tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started(*TWO_RANK_FLAGS, bucket=tmp_path, hosts=2, processes=1, restarts=1) as running:
        running.wait_for("checkpoint ")
        running.hosts[1].terminate()
        assert running.hosts[1].wait() == PREEMPTED
        running.start_host(1)
        running.wait_for_host(1, "resume ")
        # The only restart is still left.
        os.kill(running.rank_pid(1), signal.SIGKILL)
        result = running.end(DONE, DONE)
    lines = [line for line in result.output.splitlines() if "preempted at step" in line]
    (step,) = {line.partition("at step ")[2].split()[0] for line in lines}
    assert step in map(str, steps(result, "resume"))


def test_stopped_rank_is_replaced_by_a_new_process(tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started(
        *ENDLESS, "--process-group-timeout=4", bucket=tmp_path, hosts=2, processes=1, restarts=1
    ) as running:
        running.wait_for("checkpoint ")
        stopped = running.rank_pid(1)
        os.kill(stopped, signal.SIGSTOP)
        assert_continues(running)
        assert running.rank_pid(1) != stopped
        assert not Path(f"/proc/{stopped}").exists()
