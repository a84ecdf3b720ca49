"""The interface of a data set: its sizes and a batch for each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from trainer.data.sampler import EpochSampler, Share

NO_LABEL = -100
"""Class of a sample without a label. torch's cross entropy ignores it."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The samples of one rank's gradient in one step."""

    images: torch.Tensor
    """Images as a float tensor of samples x channels x height x width, on the device."""
    labels: torch.Tensor
    """Class of each image, on the device."""
    scale: float | torch.Tensor
    """Factor of the sum of this rank's losses that makes the mean over ranks the mean over samples."""


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
        """Known unreadable samples, each with the reason. They do not contribute to the gradient."""

    def follow(self, sampler: EpochSampler) -> None:
        """Set the sampler, which tells the data set the next steps."""

    def batch(self, share: Share, *, world: int) -> Batch:
        """Return this rank's samples of one training step."""

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's part of the test set. Every sample is in exactly one rank's part."""


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a host tensor on the device. On CUDA only the current stream waits for the copy, not the host."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
