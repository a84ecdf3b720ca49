"""Measured cost of a background save and of torch.save, without the time of extra training steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench import trainer_rank
from bench.trainer import compare_saves
from bench.trainer_rank import saves
from trainer.checkpoints.tensor_files import is_complete
from trainer.config import ImagenetConfig
from trainer.runtime import start_runtime
from trainer.storage import Folder


def test_compare_saves_subtracts_the_time_of_extra_steps() -> None:
    # 10 steps of 1 s. The background save adds 0.2 s in 12 steps, and torch.save adds 0.5 s.
    rounds = [[(10.0, 10.0), (12.2, 12.0), (10.5, 10.0)]] * 3
    measure, added = compare_saves(rounds)
    assert measure.ours == pytest.approx((10.2,) * 3)
    assert (measure.theirs, measure.is_met) == ((10.5,) * 3, True)
    assert added.line() == "save-steps-added  background save +0.20 s in at most 12 steps, torch.save +0.50 s"


def test_saves_blocks_write_nothing_or_a_checkpoint_or_a_torch_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_rank, "SAVED_MODEL", "mobilenet_v3_small")
    monkeypatch.setattr(trainer_rank, "SAVE_STEPS", 2)
    config = ImagenetConfig(arch="mobilenet_v3_small", image_size=64, batch_size=8)
    blocks = saves(tmp_path, start_runtime(config))
    assert blocks["without"]()[1] == 2
    assert not (tmp_path / "saved").exists()
    seconds, steps = blocks["ours"]()
    assert seconds > 0
    assert steps >= 2
    (saved,) = (tmp_path / "saved" / "checkpoints" / "training").iterdir()
    assert is_complete(Folder(f"file://{saved}"))
    assert blocks["theirs"]()[1] == 2
    found = torch.load(tmp_path / "state.pt")
    assert {"model", "optimizer"} == found.keys()
