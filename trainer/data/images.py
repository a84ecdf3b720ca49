"""Images from files: each step's share is cut out of the mapped cache ahead of time, beside the training."""

from __future__ import annotations

import copy
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.config import ImagenetConfig
from trainer.data.batch import Batch, sent
from trainer.data.image_cache import DecodedImages, Pixels, cached
from trainer.data.image_files import ImageFile, Place, find_images
from trainer.data.image_stream import StreamedImages
from trainer.data.sampler import EpochSampler, Share
from trainer.exit_codes import DataError
from trainer.storage import Folder

Numbers = npt.NDArray[Any]
Images = DecodedImages | StreamedImages
MARGIN = 8
"""Images are kept an eighth larger than they are trained on: the rest is for random cuts."""
AHEAD = 3
"""Steps whose images are cut out before they are asked for."""
FEWEST_CLASSES = 2
"""With one there is nothing to tell apart: every model is right, and its loss is 0."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's colours, 0 to 1, which every published model is trained with."""


class Cut(NamedTuple):
    """A step's images and labels, on the device or on their way there."""

    pixels: torch.Tensor
    """Bytes, samples x height x width x channels."""
    labels: torch.Tensor
    """Class of each image."""
    copied: torch.cuda.Event | None
    """On CUDA the moment at which both are there."""

    def wait(self) -> None:
        """Have the device, not the host, wait until both are there."""
        if self.copied:
            self.copied.wait()
            now = torch.cuda.current_stream(self.pixels.device)
            for tensor in (self.pixels, self.labels):
                # Their memory is of the other stream, which must not take it again before this one is done with it.
                tensor.record_stream(now)


class FolderImages:
    """ImageNet, Tiny-ImageNet or WebDataset images in a folder of a disk or a bucket."""

    channels = 3

    def __init__(self, config: ImagenetConfig, device: torch.device, place: Place) -> None:
        self.side = config.image_size
        self._kept = self.side + self.side // MARGIN
        self._device, self._seed, self._batch, self._epochs = device, config.seed, config.batch_size, config.epochs
        folder = Folder(config.data_dir)
        train, self.classes = find_images(folder, "train", place)
        if config.num_classes not in (ImagenetConfig.num_classes, self.classes):
            raise DataError(
                f"{config.data_dir} has {self.classes} classes, and num_classes is {config.num_classes}: leave "
                "--num-classes out, or give the folder that was meant"
            )
        if self.classes < FEWEST_CLASSES:
            raise DataError(f"{config.data_dir} has images of one class; allowed are two classes or more: add them")
        tests, _ = find_images(folder, "val", place, trained=self.classes)
        self._train, self._tests = (self._open(config, folder, images, place) for images in (train, tests))
        self.num_samples, self.num_tests = len(self._train.labels), len(self._tests.labels)
        self._sampler: EpochSampler | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="images")
        self._ahead: deque[tuple[tuple[int, int], Future[Cut]]] = deque()
        # On CUDA images are copied beside the steps before theirs, and not between two of them.
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch's
        self._mean = 255 * torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = 255 * torch.tensor(DEVIATION, device=device).view(1, 3, 1, 1)

    def _open(self, config: ImagenetConfig, folder: Folder, images: list[ImageFile], place: Place) -> Images:
        if config.stream:
            return StreamedImages(folder, images, self._kept)
        cache = Path(config.cache_dir or Path(tempfile.gettempdir()) / "trainyard-images")
        return cached(folder, images, self._kept, cache, builds=place.builds, alive=place.alive)

    @property
    def broken(self) -> Sequence[str]:
        """Images that cannot be read, as far as it is known."""
        return [*self._train.broken, *self._tests.broken]

    def follow(self, sampler: EpochSampler) -> None:
        """Cut the images of the sampler's next steps ahead of time."""
        self._sampler = sampler

    def batch(self, share: Share, *, world: int) -> Batch:
        """This rank's images of one training step."""
        step = (share.epoch, share.position)
        while self._ahead and self._ahead[0][0] != step:
            self._ahead.popleft()[1].cancel()
        cut = self._ahead.popleft()[1].result() if self._ahead else self._cut_share(share)
        self._look_ahead()
        cut.wait()
        return Batch(images=self._as_numbers(cut.pixels), labels=cut.labels, scale=world / share.total)

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Every world-th image of the test set, from the rank-th on, cut in the middle."""
        mine = np.arange(rank, self.num_tests, world)
        corner = np.full((self._batch, 2), (self._kept - self.side) // 2)
        for start in range(0, len(mine), self._batch):
            part = mine[start : start + self._batch]
            pixels = self._cut(self._tests, part, corner[: len(part)], np.zeros(len(part), dtype=bool))
            labels = torch.from_numpy(self._tests.labels[part])
            yield self._as_numbers(sent(torch.from_numpy(pixels), self._device)), sent(labels, self._device)

    def _look_ahead(self) -> None:
        if self._sampler is None:
            return
        ahead = copy.copy(self._sampler)
        planned = len(self._ahead)
        for number in range(AHEAD):
            if not ahead.steps_left:
                # Beside the evaluation, too: the next epoch need not wait for its first images.
                if ahead.epoch + 1 >= self._epochs:
                    return
                ahead.next_epoch()
            share = ahead.next()
            if number >= planned:
                work = self._threads.submit(self._cut_share, share)
                self._ahead.append(((share.epoch, share.position), work))

    def _cut_share(self, share: Share) -> Cut:
        """Random cuts, half of them mirrored: the same for any number of ranks and after a restart."""
        chance = np.random.default_rng((self._seed, share.epoch, share.position))
        mine = slice(share.offset, share.offset + len(share.indices))
        corners = chance.integers(0, self._kept - self.side + 1, (share.total, 2))[mine]
        mirrored = (chance.random(share.total) < 0.5)[mine]
        indices = share.indices.numpy()
        pixels = torch.from_numpy(self._cut(self._train, indices, corners, mirrored))
        labels = torch.from_numpy(self._train.labels[indices])
        if self._copies is None:
            return Cut(pixels, labels, None)
        with torch.cuda.stream(self._copies):
            return Cut(sent(pixels, self._device), sent(labels, self._device), self._copies.record_event())

    def _cut(self, images: Images, indices: Numbers, corners: Numbers, mirrored: Numbers) -> Pixels:
        side = self.side
        found = np.empty((len(indices), side, side, 3), dtype=np.uint8)
        for target, whole, (top, left), mirror in zip(found, images.fetch(indices), corners, mirrored, strict=True):
            cut = whole[top : top + side, left : left + side]
            target[:] = cut[:, ::-1] if mirror else cut
        return found

    def _as_numbers(self, pixels: torch.Tensor) -> torch.Tensor:
        """Float images, samples x channels x height x width, in channels-last memory as the files have them."""
        images = pixels.permute(0, 3, 1, 2).float()
        return images.sub_(self._mean).div_(self._deviation)
