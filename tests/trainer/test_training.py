"""Runs in separate processes: results, resumes, reports, exit codes and torch.compile."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from infra.local.trainer_image import digits_folder
from setup.datasets import has_digits
from tests.trainer.processes import RunResult, metrics, run, run_python, started
from tests.trainer.recipes import Recipe
from tests.trainer.saving import read_checkpoint
from trainer.config import DigitsConfig
from trainer.data.datasets import Digits
from trainer.exit_codes import BAD_CONFIGURATION, DATA_ERROR, DIVERGED, DONE, PREEMPTED, DataError
from trainer.loop import check_same_data
from trainer.runtime import Runtime

EPOCHS = 8
STEPS_PER_EPOCH = 25
RUN_FLAGS = (f"--epochs={EPOCHS}", "--checkpoint-steps=10", "--keep-checkpoints=1000", "--log-steps=10")
TWO_RANK_FLAGS = (*RUN_FLAGS, "--batch-size=8")
LAST_STEP = EPOCHS * STEPS_PER_EPOCH
TRAIN_KEYS = {
    *("epoch", "step", "global_step", "loss", "accuracy", "rate", "global_rate", "rank", "host", "time"),
    *("data_wait", "all_reduce", "memory_mib", "goodput"),
}
SHORT_FLAGS = ("--epochs=1", "--log-steps=1000")
PROMISED_ACCURACY = 98.5
"""Accuracy of the digits recipe on the 2,000 test digits, in percent (docs/trainer.md)."""


def checkpoint_at(bucket: Path, step: int) -> dict[str, Any]:
    """Return the checkpoint of a step: its tensors and facts in one dictionary, without the times."""
    tensors, facts = read_checkpoint(bucket / "checkpoints" / "training" / f"step-{step:09d}")
    assert facts.pop("began") > 0
    assert facts.pop("useful_seconds") > 0
    return {**tensors, **facts}


def assert_same(left: object, right: object) -> None:
    """Assert that two checkpoints are bitwise equal."""
    if isinstance(left, torch.Tensor):
        assert isinstance(right, torch.Tensor)
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert isinstance(right, dict)
        assert left.keys() == right.keys()
        for key, value in left.items():
            assert_same(value, right[key])
    elif isinstance(left, list):
        assert isinstance(right, list)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> tuple[Path, RunResult]:
    """Return the bucket and the result of a complete run on two hosts with one rank each."""
    bucket = tmp_path_factory.mktemp("undisturbed")
    return bucket, run(*TWO_RANK_FLAGS, f"--bucket=file://{bucket}", hosts=2, processes=1, data=digits, recipe="digits")


def test_run_on_two_hosts_learns(undisturbed: tuple[Path, RunResult]) -> None:
    _, result = undisturbed
    losses = [float(event["loss"]) for event in result.events("train") if event["rank"] == "0/2"]
    assert losses[-1] < losses[0] / 3
    assert {event["test_accuracy"] for event in result.events("done")} == {result.events("test")[-1]["accuracy"]}
    assert float(result.events("done")[0]["test_accuracy"]) > 85


def test_every_rank_reports_its_node_device_and_rate(undisturbed: tuple[Path, RunResult]) -> None:
    _, result = undisturbed
    starts = {event["rank"]: event for event in result.events("start")}
    assert {rank: event["node"] for rank, event in starts.items()} == {"0/2": "node-0", "1/2": "node-1"}
    assert all(event["threads"] == "1" and event["device"] == "cpu" for event in starts.values())
    trains = result.events("train")
    assert trains[0]["step"] == f"1/{STEPS_PER_EPOCH}"
    for event in trains:
        assert event.keys() - {"teraflops"} == TRAIN_KEYS
        assert float(event["rate"]) > 0
        assert float(event["memory_mib"]) > 100
        assert float(event["data_wait"]) + float(event["all_reduce"]) < 100
        assert 0 < float(event["goodput"]) < 100
        assert 0 <= float(event["accuracy"]) <= 100
    assert float(trains[-1]["teraflops"]) > 0
    assert max(float(event["all_reduce"]) for event in trains) > 0


def test_ranks_evaluate_the_whole_test_set(undisturbed: tuple[Path, RunResult]) -> None:
    _, result = undisturbed
    by_rank = [[event for event in result.events("test") if event["rank"] == rank] for rank in ("0/2", "1/2")]
    assert [len(events) for events in by_rank] == [EPOCHS, EPOCHS]
    for one, other in zip(*by_rank, strict=True):
        assert (one["accuracy"], one["loss"]) == (other["accuracy"], other["loss"])
        assert float(one["accuracy"]) == int(float(one["accuracy"])), "100 test samples must give whole percents"


def test_metrics_and_curves_are_written_to_the_bucket(undisturbed: tuple[Path, RunResult]) -> None:
    bucket, result = undisturbed
    for rank in (0, 1):
        records = metrics(bucket, rank=rank)
        printed = [line for line in result.output.splitlines() if f"rank={rank}/2" in line]
        assert [record["event"] for record in records] == [line.split()[0] for line in printed]
        assert records[-1]["event"] == "done"
        assert next(record["steps"] for record in records if record["event"] == "train") == STEPS_PER_EPOCH
    events = list((bucket / "training" / "tensorboard").iterdir())
    assert len(events) == 1
    assert events[0].stat().st_size > 1000


def test_two_ranks_have_nearly_the_weights_of_one_rank_on_the_same_samples(
    undisturbed: tuple[Path, RunResult], tmp_path: Path, digits: Path
) -> None:
    bucket, _ = undisturbed
    flags = (*RUN_FLAGS, "--batch-size=16", f"--bucket=file://{tmp_path}")
    with started(*flags, data=digits, recipe="digits") as running:
        running.wait_for(f"checkpoint step={STEPS_PER_EPOCH} ")
    one_rank, two_ranks = checkpoint_at(tmp_path, STEPS_PER_EPOCH), checkpoint_at(bucket, STEPS_PER_EPOCH)
    assert one_rank["sampler"] == two_ranks["sampler"]
    weights = [name for name in one_rank if name.startswith("model.")]
    assert len(weights) == 8
    for name in weights:
        torch.testing.assert_close(one_rank[name], two_ranks[name], rtol=1e-3, atol=1e-4)


def test_killed_and_preempted_run_ends_with_the_same_result(tmp_path: Path, recipe: Recipe) -> None:
    with recipe.started(*TWO_RANK_FLAGS, bucket=tmp_path, processes=2) as first:
        first.wait_for("train epoch=2")
        os.kill(first.rank_pid(1), signal.SIGKILL)
        killed = first.end()
    assert killed.codes[0] in (128 + signal.SIGKILL, PREEMPTED), killed.output

    with recipe.started(*TWO_RANK_FLAGS, bucket=tmp_path, processes=2) as second:
        resumed = second.wait_for("resume")
        second.wait_for("train epoch=4")
        os.kill(second.rank_pid(1), signal.SIGTERM)
        preempted = second.end(PREEMPTED)
    assert "step=0" not in resumed
    saved_step = int(preempted.events("checkpoint")[-1]["step"])
    assert f"preempted at step {saved_step} " in preempted.output
    assert saved_step < LAST_STEP

    third = recipe.run(*TWO_RANK_FLAGS, bucket=tmp_path, processes=2)
    assert {event["step"] for event in third.events("resume")} == {str(saved_step)}
    recipe.run(*TWO_RANK_FLAGS, bucket=tmp_path / "undisturbed", processes=2)
    assert_same(checkpoint_at(tmp_path, LAST_STEP), checkpoint_at(tmp_path / "undisturbed", LAST_STEP))


def test_finished_run_started_again_reports_its_result(undisturbed: tuple[Path, RunResult], digits: Path) -> None:
    bucket, result = undisturbed
    again = run(*TWO_RANK_FLAGS, f"--bucket=file://{bucket}", data=digits, recipe="digits")
    assert again.events("train") == []
    assert again.events("done")[0]["test_accuracy"] == result.events("done")[0]["test_accuracy"]


def test_finished_run_exits_without_interpreter_shutdown(undisturbed: tuple[Path, RunResult], digits: Path) -> None:
    bucket, _ = undisturbed
    # A normal shutdown of the interpreter would free `client` and so abort the process.
    program = """
import atexit, os, runpy, sys
class Client:
    def __del__(self, abort=os.abort):
        abort()
client = Client()
atexit.register(print, "the exit function ran")
sys.argv[0] = "trainer"
runpy.run_module("trainer", run_name="__main__")
"""
    result = run_python(
        "-c", program, "digits", *TWO_RANK_FLAGS, f"--bucket=file://{bucket}", TRAINYARD_DATA=str(digits)
    )
    assert result.returncode == DONE, result
    assert result.stdout.splitlines()[-1] == "the exit function ran"


def test_loss_that_is_not_finite_ends_training(tmp_path: Path, recipe: Recipe) -> None:
    flags = ("--learning-rate=1e30", "--log-steps=2", "--checkpoint-steps=1")
    result = recipe.run(*flags, bucket=tmp_path, processes=2, code=DIVERGED)
    assert "lower learning_rate" in result.output
    for path in (tmp_path / "checkpoints" / "training").glob("*"):
        found = checkpoint_at(tmp_path, int(path.name.removeprefix("step-")))
        assert all(tensor.isfinite().all() for name, tensor in found.items() if name.startswith("model."))


@pytest.mark.parametrize("when", ["--checkpoint-steps=1", "--batch-size=400"])
def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, recipe: Recipe, when: str) -> None:
    # The loss of the first step is finite, but the weights after that step are not.
    broken = ("--learning-rate=1e37", "--weight-decay=1e37", "--warmup=0", "--batch-size=200", "--epochs=2")
    result = recipe.run(*broken, when, bucket=tmp_path, code=DIVERGED)
    assert "at or before step 1;" in result.output
    assert not list(tmp_path.glob("checkpoints/training/*"))


def test_missing_digits_end_run_with_a_remedy(tmp_path: Path) -> None:
    result = run(data=tmp_path, recipe="digits", code=DATA_ERROR)
    assert "--data-dir" in result.output


@pytest.mark.parametrize("arch", ["resnet18", "timm/test_resnet"])
def test_models_of_both_libraries_train_on_generated_images(digits: Path, arch: str) -> None:
    size = ("--image-size=32", "--num-classes=10", "--batch-size=4", "--learning-rate=0.02")
    steps = ("--epochs=1", "--steps-per-epoch=12", "--test-steps=2", "--log-steps=4")
    result = run("--fake-data", f"--arch={arch}", *size, *steps, data=digits, recipe="imagenet")
    assert [event["step"] for event in result.events("train")] == ["1/12", "4/12", "8/12", "12/12"]
    losses = [float(event["loss"]) for event in result.events("train")]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("name", "difference"), [("training samples", 1), ("test samples", -1), ("classes", 1)])
def test_different_data_on_another_host_is_rejected(
    name: str, difference: int, digits: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Digits(DigitsConfig(data_dir=str(digits)), runtime.device)
    check_same_data(data, runtime)

    def gather(own: dict[str, Any]) -> list[dict[str, Any]]:
        return [own, own, {**own, name: own[name] + difference}]

    monkeypatch.setattr(runtime, "gather", gather)
    with pytest.raises(
        DataError, match=rf"^rank 2 has \d+ {name}, and rank 0 has \d+; all hosts must have the same data"
    ):
        check_same_data(data, runtime)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU, and there is none here")
def test_compiled_ranks_have_nearly_the_test_loss_of_eager_ranks(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain = run(*SHORT_FLAGS, recipe="digits", processes=2, data=digits)
    assert not list(tmp_path.rglob("*.so"))
    compiled = run(*SHORT_FLAGS, "--compile", recipe="digits", processes=2, data=digits)
    assert list(tmp_path.rglob("*.so")), "no kernel was compiled"
    compiled_loss, plain_loss = (float(result.events("test")[0]["loss"]) for result in (compiled, plain))
    assert compiled_loss == pytest.approx(plain_loss, rel=0.02)


def test_compile_without_compiler_is_rejected(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    result = run(*SHORT_FLAGS, "--compile", recipe="digits", data=digits, code=BAD_CONFIGURATION)
    assert "compile = True: must be False if torch.compile cannot compile" in result.output
    assert "No working C++ compiler" in result.output


@pytest.mark.long
def test_digits_recipe_with_defaults_reaches_documented_accuracy() -> None:
    assert has_digits(), "all 10,000 digits are needed; run `make setup`"
    result = run("--threads=2", data=digits_folder(), recipe="digits")
    assert float(result.events("done")[0]["test_accuracy"]) >= PROMISED_ACCURACY, result.output
