"""The recipe `language`: runs learn texts, report measures of language models, and resume exactly."""

from __future__ import annotations

import json
import math
import os
import random
import signal
from pathlib import Path

import pytest
import torch

from tests.trainer.language import FLAGS, MODEL, write_texts
from tests.trainer.processes import metrics, run, started
from tests.trainer.saving import read_checkpoint
from trainer.config import LanguageConfig
from trainer.exit_codes import DATA_ERROR, DONE
from trainer.models import learning_rate


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts"), steps=40)


def newest_tensors(bucket: Path) -> dict[str, torch.Tensor]:
    """Return the weights and the optimizer state in the newest checkpoint."""
    tensors, _ = read_checkpoint(sorted((bucket / "checkpoints" / "training").iterdir())[-1])
    return {name: tensor for name, tensor in tensors.items() if name.startswith(("model.", "optimizer."))}


def curve(bucket: Path) -> dict[tuple[str, int], float]:
    """Return the loss of each step and evaluation. If a resumed run repeated a step, return its last loss."""
    return {(event["event"], event["global_step"]): event["loss"] for event in metrics(bucket) if "loss" in event}


def test_language_model_learns_and_generates_text(data: Path, tmp_path: Path) -> None:
    flags = ("--epochs=8", "--sample-tokens=60", "--temperature=0", "--prompt=the ", "--evaluate-steps=30")
    run(*MODEL, *flags, "--device=cpu", f"--bucket=file://{tmp_path}", recipe="language", data=data)
    first, *_, last = metrics(tmp_path, "test")
    assert last["bits_per_byte"] < 0.5 * first["bits_per_byte"]
    assert last["bits_per_byte"] == pytest.approx(last["loss"] / math.log(2) * tokens_per_byte(data), rel=1e-4)
    (done,) = metrics(tmp_path, "done")
    tested = [event["bits_per_byte"] for event in metrics(tmp_path, "test")]
    assert (done["test_bits_per_byte"], done["best_bits_per_byte"]) == (tested[-1], min(tested))
    samples = [json.loads(event["text"]) for event in metrics(tmp_path, "sample")]
    assert len(samples) == len(tested) > 6
    assert samples[-1].startswith("the ")
    assert len(samples[-1]) == 64


def tokens_per_byte(data: Path) -> float:
    """Return the tokens of the test texts per byte. Each byte is a token, and each document has a separator."""
    sizes = [path.stat().st_size for path in (data / "test").iterdir()]
    return (sum(sizes) + len(sizes)) / sum(sizes)


def test_train_event_has_the_measures_of_a_language_model(data: Path) -> None:
    result = run(*FLAGS, "--batch-size=8", "--peak-teraflops=1", recipe="language", data=data)
    event = result.events("train")[-1]
    for name in ("loss", "bits_per_byte", "gradient_norm", "rate", "global_rate", "teraflops", "mfu"):
        assert float(event[name]) > 0, name
    assert "accuracy" not in event
    sizes = LanguageConfig(layers=2, width=64, heads=4, kv_heads=2, hidden=96).sizes
    flops = sizes.flops_per_token(context=32, vocabulary=320)
    assert float(event["teraflops"]) == pytest.approx(flops * float(event["rate"]) / 1e12, abs=2e-3)


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_run_resumes_with_bitwise_equal_weights_and_losses(ranks: int, data: Path, tmp_path: Path) -> None:
    flags = (*FLAGS, "--epochs=2", f"--batch-size={8 // ranks}", "--checkpoint-steps=7")
    kill_after = random.Random(ranks).randrange(15, 60)
    words = (*flags, f"--bucket=file://{tmp_path / 'killed'}")
    with started(*words, recipe="language", processes=ranks, restarts=1, data=data) as running:
        epoch, step = divmod(kill_after, 40)
        running.wait_for(f"train epoch={epoch + 1} step={step + 1}/40")
        os.kill(running.rank_pid(ranks - 1), signal.SIGKILL)
        result = running.end(DONE)
    assert len(result.events("resume")) == ranks, result.output
    run(*flags, f"--bucket=file://{tmp_path / 'whole'}", recipe="language", processes=ranks, data=data)
    found, expected = newest_tensors(tmp_path / "killed"), newest_tensors(tmp_path / "whole")
    assert found.keys() == expected.keys()
    assert [name for name, tensor in found.items() if not torch.equal(tensor, expected[name])] == []
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")


def test_folder_without_texts_is_data_error(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    result = run(*FLAGS, recipe="language", data=tmp_path, code=DATA_ERROR)
    assert f"{tmp_path} has no text of train" in result.output


@pytest.mark.parametrize(
    ("schedule", "progress", "share"),
    [
        ("cosine", 0.05, 0.5),
        ("cosine", 0.1, 1.0),
        ("cosine", 0.55, 0.55),
        ("cosine", 1.0, 0.1),
        ("stable", 0.05, 0.5),
        ("stable", 0.79, 1.0),
        ("stable", 0.9, 0.55),
        ("stable", 1.0, 0.1),
    ],
)
def test_learning_rate_follows_the_schedule(schedule: str, progress: float, share: float) -> None:
    config = LanguageConfig(learning_rate=2.0, warmup=0.1, decay=0.2, final_rate=0.1)
    object.__setattr__(config, "schedule", schedule)
    assert learning_rate(config, progress) == pytest.approx(2 * share)
