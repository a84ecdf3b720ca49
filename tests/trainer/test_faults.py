"""Runs with faults: killed and preempted ranks, broken checkpoints, full disks, unreachable W&B. Also profiles."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer.faulty import KILLS_IN_A_SAVE
from tests.trainer.processes import json_lines, metrics, run, started
from tests.trainer.recipes import ENDLESS, Recipe
from tests.trainer.test_checkpoint import DEFECTS, change
from tests.trainer.test_gallery import wandb_records
from tests.trainer.test_training import (
    EPOCHS,
    LAST_STEP,
    RUN_FLAGS,
    STEPS_PER_EPOCH,
    TWO_RANK_FLAGS,
    assert_same,
    checkpoint_at,
)
from trainer.checkpoints.tensor_files import MANIFEST
from trainer.exit_codes import DATA_ERROR, DONE, PREEMPTED, STORAGE_ERROR

KILLS = 2
"""Number of kills in a run."""


def undisturbed_run(bucket: Path, recipe: Recipe, *flags: str) -> Path:
    """Train two ranks to the end without a fault. Return the bucket, which keeps every checkpoint."""
    recipe.run(*TWO_RANK_FLAGS, *flags, bucket=bucket, processes=2)
    return bucket


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_randomly_killed_ranks_end_with_the_same_result(seed: int, tmp_path: Path, recipe: Recipe) -> None:
    undisturbed = undisturbed_run(tmp_path / "undisturbed", recipe, f"--seed={seed}")
    rng = random.Random(seed)
    with recipe.started(*TWO_RANK_FLAGS, f"--seed={seed}", bucket=tmp_path, processes=2, restarts=KILLS) as running:
        for _ in range(KILLS):
            # Wait for few checkpoints, so that training does not end before the last kill.
            for _ in range(rng.randint(1, 4)):
                running.wait_for("checkpoint ")
            time.sleep(rng.uniform(0, 0.05))
            os.kill(running.rank_pid(rng.randrange(2)), signal.SIGKILL)
            running.wait_for("resume")
        result = running.end(DONE)
    assert len(result.events("resume")) == 2 * KILLS
    assert_same(checkpoint_at(tmp_path, LAST_STEP), checkpoint_at(undisturbed, LAST_STEP))


def test_ranks_killed_inside_saves_end_with_the_same_result(tmp_path: Path, recipe: Recipe) -> None:
    undisturbed = undisturbed_run(tmp_path / "undisturbed", recipe, "--epochs=2")
    program, restarts = "tests.trainer.faulty killed all", len(KILLS_IN_A_SAVE)
    with recipe.started(
        *TWO_RANK_FLAGS, "--epochs=2", bucket=tmp_path, processes=2, restarts=restarts, program=program
    ) as running:
        result = running.end(DONE)
    killed = [(event["failed_rank"], event["exit_code"]) for event in result.events("restart")]
    assert killed == [(f"{rank}", f"{-signal.SIGKILL}") for _, rank, _ in KILLS_IN_A_SAVE], result.output
    # Each start completes one save. In the next save, a rank dies: before the manifest exists in the first three
    # starts, and afterwards in the fourth.
    resumed = [int(event["step"]) for event in result.events("resume") if event["rank"] == "0/2"]
    assert resumed == [10, 20, 25, 40], result.output
    skipped = [(e["path"], e["reason"]) for e in result.events("checkpoint_skipped") if e["rank"] == "0/2"]
    assert skipped == [(f"step-{step:09d}", "it_was_not_finished") for step in (20, 25, 30)], result.output
    assert_same(checkpoint_at(tmp_path, 50), checkpoint_at(undisturbed, 50))


def run_with_fault(recipe: Recipe, fault: str) -> str:
    """Train two ranks, with a fault of tests/trainer/faulty.py in rank 1. Return the output.

    Assert exit code 1, which errors without a specific exit code have.
    """
    program = f"tests.trainer.faulty {fault} 1"
    return recipe.run("--epochs=1000", "--batch-size=8", processes=2, program=program, code=1).output


def test_out_of_memory_after_the_first_steps_ends_run_without_traceback(recipe: Recipe) -> None:
    output = run_with_fault(recipe, "memory")
    assert "error: flags.batch_size = 8, flags.accumulate = 1: the host ran out of memory (" in output
    assert "(rank 1, exit code 1)" in output
    assert "Traceback" not in output


def test_unexpected_error_ends_run_with_its_traceback(recipe: Recipe) -> None:
    output = run_with_fault(recipe, "unexpected")
    assert "Traceback" in output
    assert "ZeroDivisionError: division by zero" in output


@pytest.mark.parametrize("preemptions", [4, pytest.param(20, marks=pytest.mark.long)])
def test_preempted_run_saves_current_step(tmp_path: Path, recipe: Recipe, preemptions: int) -> None:
    rng = random.Random(0)
    steps = [0]
    for number in range(preemptions):
        with recipe.started(*ENDLESS, bucket=tmp_path, processes=2) as running:
            running.wait_for("train ")
            time.sleep(rng.uniform(0, 1))
            # The kubelet signals the launcher, which signals the ranks. A person may signal a single rank.
            pid = running.hosts[0].pid if number % 2 else running.rank_pid(rng.randrange(2))
            os.kill(pid, signal.SIGTERM)
            result = running.end(PREEMPTED)
        step = int(result.events("checkpoint")[-1]["step"])
        assert (tmp_path / "checkpoints" / "training" / f"step-{step:09d}" / "checkpoint.json").exists()
        trained = [event for event in result.events("train") if event["rank"] == "0/2"]
        assert step == steps[-1] + len(trained), "the saved step must be the last trained one"
        steps.append(step)


def test_restarts_with_two_then_one_then_two_ranks_train_each_sample_once(tmp_path: Path, recipe: Recipe) -> None:
    undisturbed = undisturbed_run(tmp_path / "undisturbed", recipe)
    program = f"tests.trainer.recorded {tmp_path}/samples"
    for flags, processes in ((TWO_RANK_FLAGS, 2), ((*RUN_FLAGS, "--batch-size=16"), 1)):
        with recipe.started(*flags, bucket=tmp_path, processes=processes, program=program) as running:
            running.wait_for("test ")
            # The preemption is in the middle of an epoch.
            running.wait_for("train ")
            os.kill(running.rank_pid(0), signal.SIGTERM)
            running.end(PREEMPTED)
    recipe.run(*TWO_RANK_FLAGS, bucket=tmp_path, processes=2, program=program)
    trained = Counter(tuple(pair) for file in tmp_path.glob("samples.*") for pair in json_lines(file))
    assert set(trained.values()) == {1}
    assert set(trained) == {(epoch, sample) for epoch in range(EPOCHS) for sample in range(STEPS_PER_EPOCH * 16)}
    found, expected = checkpoint_at(tmp_path, LAST_STEP), checkpoint_at(undisturbed, LAST_STEP)
    assert (found["step"], found["sampler"]) == (expected["step"], expected["sampler"])
    metric = f"test_{recipe.metric}"
    assert abs(found["results"][metric] - expected["results"][metric]) <= recipe.tolerance


def test_run_skips_broken_checkpoints_and_ends_with_the_same_result(tmp_path: Path, recipe: Recipe) -> None:
    undisturbed = undisturbed_run(tmp_path / "undisturbed", recipe)
    shutil.copytree(undisturbed / "checkpoints", tmp_path / "checkpoints")
    newest_first = sorted((tmp_path / "checkpoints" / "training").iterdir(), reverse=True)
    reasons = {}
    for folder, (kind, (damage, reason)) in zip(newest_first, DEFECTS.items(), strict=False):
        damage(folder)
        # The trainer compares sizes before it reads, and a folder is smaller than the file that it replaces.
        reasons[folder.name] = "too short" if kind == "a folder for tensors" else reason
    # In the next checkpoint, truncate the file of rank 1, which the trainer reads last.
    truncated = newest_first[len(DEFECTS)]
    (file,) = truncated.glob("rank-1-*.tensors")
    change(file, lambda content: content[:-1])
    reasons[truncated.name] = "too short"
    result = recipe.run(*TWO_RANK_FLAGS, bucket=tmp_path, processes=2)
    skipped = {event["path"]: event["reason"].replace("_", " ") for event in result.events("checkpoint_skipped")}
    assert skipped.keys() == reasons.keys()
    assert {name: skipped[name] for name, reason in reasons.items() if reason not in skipped[name]} == {}
    resumed = int(newest_first[len(reasons)].name.removeprefix("step-"))
    assert [int(event["step"]) for event in result.events("resume")] == [resumed, resumed]
    assert_same(checkpoint_at(tmp_path, LAST_STEP), checkpoint_at(undisturbed, LAST_STEP))
    for folder in (tmp_path / "checkpoints" / "training").iterdir():
        (folder / MANIFEST).write_bytes(b"")
    result = recipe.run(*TWO_RANK_FLAGS, bucket=tmp_path, processes=2, code=DATA_ERROR)
    assert f"none of {len(newest_first)} checkpoints can be used" in result.output


@contextmanager
def mounted_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount an empty disk of this size at the folder."""
    subprocess.run(["mount", "-n", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-n", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of 4 MiB. A checkpoint of the digits network or of the preset `1m` has more than 5 MiB."""
    with mounted_disk(tmp_path, "4m"):
        yield tmp_path


def test_full_disk_ends_run_with_its_path(small_disk: Path, recipe: Recipe) -> None:
    flags = ("--epochs=3", "--checkpoint-steps=5", f"--bucket=file://{small_disk}")
    result = run(
        *flags, *recipe.large_model_flags, processes=2, data=recipe.data, recipe=recipe.name, code=STORAGE_ERROR
    )
    assert "No space left on device" in result.output
    assert re.search(rf"error: file://{small_disk}/(checkpoints/)?training[ /]", result.output), result.output


@pytest.mark.parametrize("sink", ["metrics", "tensorboard"])
def test_disk_filled_by_events_ends_run(sink: str, tmp_path: Path, recipe: Recipe) -> None:
    # Put only this folder on the small disk, so that neither a checkpoint nor another sink fills it.
    folder = tmp_path / "training" / sink
    folder.mkdir(parents=True)
    with mounted_disk(folder, "16k"):
        result = recipe.run(*ENDLESS, bucket=tmp_path, processes=2, code=STORAGE_ERROR)
    assert re.search(rf"error: file://{folder}\S* cannot be written: No space left on device", result.output)
    assert len(result.events("train")) > 2, "the first events must fit"


@pytest.mark.parametrize(("name", "flags"), [("digits", ""), ("language", ""), ("language", "--tokenizer=bpe")])
def test_read_only_disk_ends_run(name: str, flags: str, small_disk: Path, both_recipes: dict[str, Recipe]) -> None:
    recipe = both_recipes[name]
    subprocess.run(["mount", "-n", "-o", "remount,ro", str(small_disk)], check=True)
    result = recipe.run(*flags.split(), bucket=small_disk, processes=2, code=STORAGE_ERROR)
    assert re.search(rf"file://{re.escape(str(small_disk))}\S+ cannot be written: Read-only file system", result.output)


@pytest.mark.parametrize(("mode", "name"), [("offline", "digits"), ("online", "digits"), ("online", "language")])
def test_unreachable_wandb_leaves_every_metric_in_the_bucket(
    mode: str, name: str, tmp_path: Path, both_recipes: dict[str, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = both_recipes[name]
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    result = recipe.run("--epochs=3", "--log-steps=5", f"--wandb={mode}", bucket=tmp_path)
    # Ignore online runs: with `--wandb=online`, W&B may start a run before it falls back to an offline run.
    kept = list((tmp_path / "training" / "wandb").rglob("offline-run-*/*.wandb"))
    assert len(kept) == 1, result.output
    rows = [record.history for record in wandb_records(kept[0]) if record.HasField("history")]
    points = {
        (row.step.num, item.key or "/".join(item.nested_key)): json.loads(item.value_json)
        for row in rows
        for item in row.item
    }
    records = metrics(tmp_path, "train", "test")
    assert len(records) == len(result.events("train")) + len(result.events("test")) > 5
    for record in records:
        for metric in ("loss", recipe.metric):
            assert points[record["global_step"], f"{record['event']}/{metric}"] == record[metric]


def num_profiled_steps(path: Path) -> int:
    """Return the number of optimizer steps in a trace."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sum(event.get("name") == "Optimizer.step#AdamW.step" for event in events)


def test_profile_contains_requested_steps(tmp_path: Path, digits: Path) -> None:
    flags = ("--epochs=1", "--profile-steps=3-5", "--batch-size=8", f"--bucket=file://{tmp_path}")
    result = run(*flags, processes=2, data=digits, recipe="digits")
    for rank in (0, 1):
        assert num_profiled_steps(tmp_path / "profiles" / "training" / f"rank-{rank}" / "steps-3-5.json.gz") == 3
    assert "ERROR" not in result.output, "a machine without a GPU must not print an error"


def test_profile_of_short_run_contains_existing_steps(tmp_path: Path, digits: Path) -> None:
    flags = ("--epochs=1", "--profile-steps=3-9999", "--batch-size=64", f"--bucket=file://{tmp_path}")
    result = run(*flags, data=digits, recipe="digits")
    steps = int(result.events("train")[-1]["step"].partition("/")[0])
    path = tmp_path / "profiles" / "training" / "rank-0" / f"steps-3-{steps}.json.gz"
    assert num_profiled_steps(path) == steps - 2 > 1
    assert [event["path"] for event in result.events("profile")] == [f"file://{path}"]


def test_profile_steps_outside_of_the_run_print_a_warning(tmp_path: Path, digits: Path) -> None:
    flags = ("--epochs=1", "--profile-steps=9000-9001", "--batch-size=64", f"--bucket=file://{tmp_path}")
    result = run(*flags, processes=2, data=digits, recipe="digits")
    steps = int(result.events("train")[-1]["step"].partition("/")[0])
    warning = f"warning: profile_steps = '9000-9001': must include a step of this run, 1 to {steps}; no profile"
    assert result.output.count(warning) == 1
    assert result.events("profile") == []
    later = run(
        "--epochs=2",
        "--profile-steps=1-2",
        "--batch-size=64",
        f"--bucket=file://{tmp_path}",
        data=digits,
        recipe="digits",
    )
    assert f"warning: profile_steps = '1-2': must include a step of this run, {steps + 1} to " in later.output
    assert later.events("profile") == []


def test_preempted_run_keeps_its_profile(tmp_path: Path, digits: Path) -> None:
    flags = ("--epochs=999", "--profile-steps=2-999999999", "--log-steps=1", f"--bucket=file://{tmp_path}")
    with started(*flags, data=digits, recipe="digits") as running:
        running.wait_for("train epoch=1 step=3/")
        running.hosts[0].send_signal(signal.SIGTERM)
        result = running.end(PREEMPTED)
    (path,) = (tmp_path / "profiles" / "training" / "rank-0").iterdir()
    assert num_profiled_steps(path) >= 2
    assert [event["path"] for event in result.events("profile")] == [f"file://{path}"]


def test_accumulation_gives_nearly_the_weights_of_whole_batches(tmp_path: Path, digits: Path) -> None:
    flags = (*TWO_RANK_FLAGS, "--epochs=1", "--accumulate=3", f"--bucket=file://{tmp_path}")
    run(*flags, processes=2, data=digits, recipe="digits")
    run(*TWO_RANK_FLAGS, "--epochs=1", f"--bucket=file://{tmp_path}/whole", processes=2, data=digits, recipe="digits")
    accumulated, whole = checkpoint_at(tmp_path, 25), checkpoint_at(tmp_path / "whole", 25)
    for name, weights in whole.items():
        if name.startswith("model."):
            assert (accumulated[name] - weights).abs().max() < 1e-3, name
