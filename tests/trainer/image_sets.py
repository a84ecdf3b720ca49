"""Small sets of images in each layout, and a rank that reads them without a process group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from images.trainer.made_images import imagenet, shards, tiny_imagenet
from trainer.runtime import Runtime

Value = TypeVar("Value")
CLASSES, TRAIN, TESTS, SIDE = 3, 7, 2, 32
"""Numbers of classes, of training and test images in each class, and of pixels along an edge."""
LAYOUTS: dict[str, Callable[[Path], None]] = {
    "imagenet": lambda folder: imagenet(folder, classes=CLASSES, train=TRAIN, tests=TESTS, side=SIDE),
    "tiny-imagenet": lambda folder: tiny_imagenet(folder, classes=CLASSES, train=TRAIN, tests=TESTS, side=SIDE),
    "webdataset": lambda folder: shards(folder, classes=CLASSES, train=TRAIN, tests=TESTS, side=SIDE, per_shard=8),
}
"""Layout -> function that writes such a set into a folder."""


class ReaderRank(Runtime):
    """A rank that does not communicate with the others."""

    def __init__(self, *, rank: int = 0, world: int = 1, local_rank: int = 0) -> None:
        self.rank, self.world, self.local_rank = rank, world, local_rank
        self.device = torch.device("cpu")
        self.heartbeat = lambda: None

    def gather(self, value: Value) -> list[Value]:
        """Return the own value alone."""
        return [value]


HERE = ReaderRank()
"""The only rank."""
