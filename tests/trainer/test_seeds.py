"""The largest seed, combined with epochs, positions and ranks, does not exceed the range of a generator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tests.trainer.processes import run
from trainer.config import DigitsConfig, ImagenetConfig
from trainer.data.augment import distort
from trainer.data.datasets import GeneratedImages
from trainer.data.sampler import EpochSampler, Share
from trainer.exit_codes import DONE
from trainer.setting_rules import MAX_COUNT, MAX_SEED


def share(position: int, epoch: int) -> Share:
    """Return the last two samples of a training set."""
    return Share(indices=torch.arange(2), offset=0, total=2, epoch=epoch, position=position)


def test_largest_seed_distorts_images() -> None:
    images = torch.rand(2, 1, 28, 28)
    last = distort(images, share(MAX_COUNT, MAX_COUNT), seed=MAX_SEED)
    assert last.isfinite().all()
    assert not torch.equal(last, distort(images, share(MAX_COUNT - 1, MAX_COUNT), seed=MAX_SEED))


def test_largest_seed_orders_samples_and_generates_images() -> None:
    sampler = EpochSampler(10, rank=0, world=1, batch_size=5, seed=MAX_SEED)
    sampler.epoch = MAX_COUNT
    assert len(sampler.next().indices) == 5
    config = ImagenetConfig(seed=MAX_SEED, batch_size=2, image_size=8)
    assert GeneratedImages(config, torch.device("cpu"), rank=9999, world=10_000).num_samples > 0
    assert np.random.default_rng((MAX_SEED, MAX_COUNT, MAX_COUNT)).integers(0, 9) < 9


def test_run_trains_with_the_largest_seed(digits: Path) -> None:
    assert DigitsConfig().augment
    flags = (f"--seed={MAX_SEED}", "--epochs=1", "--batch-size=128")
    ended = run(*flags, processes=2, data=digits, recipe="digits")
    assert ended.codes == [DONE], ended.output
