"""What training asks of any data set: its sizes, and a batch for each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from trainer.data.sampler import EpochSampler, Share

NO_LABEL = -100
"""Class of what teaches nothing: torch's cross entropy passes over it."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one rank computes a step's gradient from."""

    images: torch.Tensor
    """Images as a float tensor of samples x channels x height x width, on the device."""
    labels: torch.Tensor
    """Class of each image, on the device."""
    scale: float | torch.Tensor
    """What the sum of this rank's losses is multiplied with, so that the mean over ranks is the mean over samples."""


class Data(Protocol):
    """A training set and a test set."""

    classes: int
    channels: int
    side: int
    """Height and width of an image, in pixels."""
    num_samples: int
    """Samples of the training set."""
    num_tests: int
    """Samples of the test set."""

    @property
    def broken(self) -> Sequence[str]:
        """Samples that cannot be read, each with the reason, as far as it is known; nothing is learnt from them."""

    def follow(self, sampler: EpochSampler) -> None:
        """Know which steps come next."""

    def batch(self, share: Share, *, world: int) -> Batch:
        """This rank's samples of one training step."""

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """This rank's part of the test set; every sample is in exactly one rank's part."""


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on the device. On CUDA nothing but the device waits for the copy, in the current stream."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
