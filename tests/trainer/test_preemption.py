"""Preemption while ranks start, load, read data, train, evaluate or generate text. Also Ctrl-C and a killed rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.measure import free_port
from tests.trainer.processes import PROJECT, ActiveRun, descendants, started
from tests.trainer.recipes import ENDLESS, Recipe
from tests.trainer.test_training import STEPS_PER_EPOCH
from trainer.exit_codes import PREEMPTED


def test_preempted_evaluation_is_repeated_after_restart(tmp_path: Path, recipe: Recipe) -> None:
    flags = ("--epochs=1", "--log-steps=1", "--batch-size=8")
    program = "tests.trainer.faulty endless all"
    with recipe.started(*flags, bucket=tmp_path, processes=2, program=program) as running:
        running.wait_for("evaluating")
        os.kill(running.rank_pid(1), signal.SIGTERM)
        preempted = running.end(PREEMPTED)
    assert f"preempted at step {STEPS_PER_EPOCH} " in preempted.output
    assert not preempted.events("test")
    resumed = recipe.run(*flags, bucket=tmp_path, processes=2)
    assert not resumed.events("train"), "the second run must not repeat a step"
    assert len(resumed.events("test")) == 2


@pytest.mark.parametrize("groups", ["shard=2", "data=2"])
def test_preempted_run_stops_generating_text(groups: str, tmp_path: Path, both_recipes: dict[str, Recipe]) -> None:
    recipe = both_recipes["language"]
    # Generating so many tokens takes longer than this test may run.
    with recipe.started(
        "--epochs=1",
        "--batch-size=8",
        "--sample-tokens=1000000000",
        f"--parallelism={groups}",
        bucket=tmp_path,
        processes=2,
    ) as running:
        running.wait_for("test ")
        os.kill(running.hosts[0].pid, signal.SIGTERM)
        result = running.end(PREEMPTED)
    assert [event["step"] for event in result.events("checkpoint")] == [str(STEPS_PER_EPOCH)], result.output


@pytest.mark.parametrize("processes", [0, 2])
def test_ctrl_c_saves_like_sigterm(processes: int, tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started(*ENDLESS, bucket=tmp_path, processes=processes) as running:
        running.wait_for("train epoch=2")
        # A terminal signals all processes of its foreground group.
        os.killpg(running.hosts[0].pid, signal.SIGINT)
        result = running.end(PREEMPTED)
    saved_step = result.events("checkpoint")[-1]["step"]
    assert f"preempted at step {saved_step} " in result.output


def test_rank_preempted_in_its_first_step_saves(tmp_path: Path, recipe: Recipe) -> None:
    program = "tests.trainer.faulty preempted 1"
    result = recipe.run(*ENDLESS, bucket=tmp_path, processes=2, program=program, code=PREEMPTED)
    steps = [event["step"] for event in result.events("train") if event["rank"] == "0/2"]
    assert [event["step"] for event in result.events("checkpoint")] == [f"{len(steps)}"], result.output


def test_preempted_rank_that_waits_for_another_rank_stops() -> None:
    port = free_port()
    # Use rank 1: pytest's process may already be named rank-0, and its child would match before the trainer starts.
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [sys.executable, "-u", "-m", "trainer", "digits", "--device=cpu"]
    rank = subprocess.Popen(words, cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while Path(f"/proc/{rank.pid}/comm").read_text(encoding="ascii") != "rank-1\n":
        assert time.monotonic() < deadline, "the rank did not start"
        time.sleep(0.1)
    rank.terminate()
    _, errors = rank.communicate(timeout=60)
    assert rank.returncode == PREEMPTED, errors
    assert "preempted before the first step; nothing is lost (rank 1, exit code 75)" in errors


def test_launcher_preempted_before_it_starts_ranks_stops(digits: Path) -> None:
    with started(processes=2, data=digits, recipe="digits") as running:
        launcher = running.hosts[0].pid
        deadline = time.monotonic() + 60
        # The launcher first starts a process that loads torch.
        while not list(descendants(launcher)):
            assert time.monotonic() < deadline, "the launcher started no process"
        os.kill(launcher, signal.SIGTERM)
        result = running.end(PREEMPTED)
    assert "preempted before any rank was started" in result.output


@pytest.mark.parametrize("wait", ["time.sleep(600)", "threading.Lock().acquire() and threading.Event().wait()"])
def test_preempted_rank_that_loads_stops_at_once(wait: str) -> None:
    program = f"""
import os, threading, time
from signal import SIGINT
from trainer.__main__ import PreemptionSignal, report_error
from trainer.exit_codes import PreemptedError
signal = PreemptionSignal()
try:
    print("loading", flush=True)
    {wait}
except PreemptedError as error:
    # On Ctrl-C, the rank gets two signals: from the terminal and from the launcher.
    os.kill(os.getpid(), SIGINT)
    raise SystemExit(report_error(error))
"""
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        running = ActiveRun(lambda _: process, hosts=1)
        running.wait_for("loading")
        process.terminate()
        result = running.end(PREEMPTED)
    assert "nothing is lost" in result.output


@pytest.mark.parametrize(
    ("name", "file"), [("digits", "digits-images-idx3-ubyte"), ("language", "train/0.txt")], ids=["digits", "language"]
)
def test_preempted_rank_that_reads_its_data_stops_at_once(name: str, file: str, tmp_path: Path) -> None:
    # No process writes to this pipe, so a reader waits.
    (tmp_path / file).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / file)
    with started(processes=2, data=tmp_path, recipe=name) as running:
        running.wait_for("start ")
        running.hosts[0].terminate()
        result = running.end(PREEMPTED)
    assert "preempted before the first step; nothing is lost" in result.output


def test_launcher_exits_with_the_code_of_the_killed_rank(tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started("--epochs=1000", "--log-steps=1", bucket=tmp_path, processes=3) as running:
        running.wait_for("train epoch=1 step=3/")
        os.kill(running.rank_pid(2), signal.SIGKILL)
        result = running.end(128 + signal.SIGKILL)
    assert "another rank is gone" in result.output
