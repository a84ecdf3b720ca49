"""An evaluation counts every readable sample once, with the batch statistics of rank 0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
from torch.nn import functional

from images.trainer.made_images import imagenet
from tests.trainer.image_sets import load_images
from tests.trainer.processes import run
from trainer.data.datasets import NO_LABEL, Data
from trainer.exit_codes import DataError
from trainer.runtime import Runtime
from trainer.tasks import Scores, evaluate


def test_scores_ignore_samples_without_class(runtime: Runtime) -> None:
    # Class 0 has the highest score of every sample, and each later class a lower one.
    logits = torch.arange(7, 0, -1.0).repeat(6, 1)
    labels = torch.tensor([0, 1, 4, 5, NO_LABEL, 0])
    scores = Scores(7, runtime)
    for start in (0, 3):
        scores.add(logits[start : start + 3], labels[start : start + 3])
    top1, top5, loss, counted = scores.take()
    known = labels != NO_LABEL
    assert counted == 5
    assert top1 == pytest.approx(100 * 2 / 5)
    assert top5 == pytest.approx(100 * 4 / 5)
    assert loss == pytest.approx(functional.cross_entropy(logits[known], labels[known]).item())


def test_scores_with_fewer_than_five_classes_have_top5_of_100(runtime: Runtime) -> None:
    scores = Scores(3, runtime)
    scores.add(torch.rand(4, 3), torch.tensor([0, 1, 2, 0]))
    assert scores.take()[1] == 100


class FirstClass(torch.nn.Module):
    """A model that predicts the first class for every image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 0.0]).repeat(len(images), 1)


def test_evaluation_without_readable_samples_raises(runtime: Runtime) -> None:
    class UnreadableTestSet:
        """A test set without a readable sample."""

        classes, num_tests, broken = 2, 3, ("a", "b", "c")

        def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            del rank, world
            yield torch.zeros(3, 3, 8, 8), torch.full((3,), NO_LABEL)

    with pytest.raises(DataError, match="none of 3 test samples can be read"):
        evaluate(FirstClass(), cast("Data", UnreadableTestSet()), runtime, lambda: False, gallery=False)


def test_evaluation_does_not_count_unreadable_image(tmp_path: Path, runtime: Runtime) -> None:
    imagenet(tmp_path, classes=2, train=2, tests=10, side=32)
    next((tmp_path / "val" / "n00000000").iterdir()).write_bytes(b"no image")
    data = load_images(tmp_path, stream=True)
    found = evaluate(FirstClass(), data, runtime, lambda: False, gallery=False)
    assert found
    assert found.measures["accuracy"] == pytest.approx(100 * 9 / 19)
    assert len(data.broken) == 1


def test_ranks_evaluate_and_save_with_statistics_of_rank_0(digits: Path) -> None:
    result = run(recipe="digits", processes=2, data=digits, program="tests.trainer.buffer_sync")
    for name, means in (("set", "10 11 10 11"), ("evaluated", "10 10"), ("captured", "10 10")):
        assert sorted(event["mean"] for event in result.events(name)) == sorted(means.split()), result.output
