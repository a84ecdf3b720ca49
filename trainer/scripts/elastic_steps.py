"""The remaining steps of an epoch, for any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from trainer.data.datasets import Digits
from trainer.data.sampler import EpochSampler


class Step(NamedTuple):
    """This rank's samples of a step."""

    images: torch.Tensor
    labels: torch.Tensor
    scale: float
    """Factor of the sum of this rank's losses that makes the mean over ranks the mean over samples."""
    total: int
    """Number of samples over all ranks."""
    position: int
    """Number of the epoch's samples after this step."""
    number: tuple[int, int]
    """Number of the step in the epoch, and the number of steps."""


class Steps:
    """The remaining steps of an epoch. It has no length, because that depends on the number of ranks."""

    def __init__(self, data: Digits, sampler: EpochSampler, epoch: Callable[[], int]) -> None:
        self._data, self._sampler, self._epoch = data, sampler, epoch
        self.resumed = (0, 0)
        """Epoch and position of the restored checkpoint."""

    def __iter__(self) -> Iterator[Step]:
        sampler, (epoch, position) = self._sampler, self.resumed
        sampler.epoch = self._epoch()
        sampler.position = position if sampler.epoch == epoch else 0
        steps = sampler.epoch_steps
        while sampler.steps_left:
            share = sampler.next()
            batch = self._data.batch(share, world=sampler.world)
            number = (steps - sampler.steps_left, steps)
            yield Step(batch.images, batch.labels, float(batch.scale), share.total, sampler.position, number)
