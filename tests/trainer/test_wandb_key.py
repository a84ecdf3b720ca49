"""A run of Weights & Biases without a key is kept and does not end the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.report.sinks import Record
from trainer.report.wandb_run import WeightsAndBiases
from trainer.storage import Folder


def test_wandb_without_key_is_kept_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    run = WeightsAndBiases(Folder(f"file://{tmp_path}/runs"), job="digits", rank=0, mode="online")
    run.write(Record(name="train", time=0.0, values={"loss": 1.0}, global_step=1))
    run.close()
    assert "warning: W&B rejected the run of this rank" in capsys.readouterr().err
    assert list((tmp_path / "runs").rglob("offline-run-*/*.wandb"))
