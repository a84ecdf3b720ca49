"""Small sets of images in each layout, tar files, and a rank that reads images without other ranks."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from images.trainer.made_images import imagenet, shards, tiny_imagenet
from trainer.config import ImagenetConfig
from trainer.data.images import FolderImages
from trainer.runtime import Runtime

Value = TypeVar("Value")
CLASSES, TRAIN, TESTS, SIDE = 3, 7, 2, 32
"""Numbers of classes, of training and test images in each class, and of pixels along an edge."""


def layouts(train: int, tests: int, per_shard: int) -> dict[str, Callable[[Path], None]]:
    """Return a function for each layout. It writes a set of images in this layout into a folder."""
    return {
        "imagenet": partial(imagenet, classes=CLASSES, train=train, tests=tests, side=SIDE),
        "tiny-imagenet": partial(tiny_imagenet, classes=CLASSES, train=train, tests=tests, side=SIDE),
        "webdataset": partial(shards, classes=CLASSES, train=train, tests=tests, side=SIDE, per_shard=per_shard),
    }


LAYOUTS = layouts(TRAIN, TESTS, per_shard=8)
"""Layout -> function that writes a set of images in this layout into a folder."""


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a tar file with these members."""
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


class ReaderRank(Runtime):
    """A rank that reads data. It does not communicate with other ranks."""

    def __init__(self, *, rank: int = 0, world: int = 1, local_rank: int = 0) -> None:
        self.rank, self.world, self.local_rank = rank, world, local_rank
        self.device = torch.device("cpu")
        self.heartbeat = lambda: None
        self.store = None

    def gather(self, value: Value) -> list[Value]:
        return [value]


ONLY_RANK = ReaderRank()


def load_images(
    folder: Path | str, cache: Path | str = "", runtime: Runtime = ONLY_RANK, **settings: Any
) -> FolderImages:
    """Load a set of images in a folder or bucket. Images and batches are small, unless `settings` differ."""
    small = {"image_size": 24, "batch_size": 4, **settings}
    config = ImagenetConfig(fake_data=False, data_dir=str(folder), cache_dir=str(cache), **small)
    return FolderImages(config, runtime)
