"""Images from files. A thread crops them before the step that needs them."""

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
from trainer.data.datasets import PREFETCH_STEPS, Batch, to_device
from trainer.data.image_cache import DecodedImages, Pixels, StreamedImages, load_cached
from trainer.data.image_files import ImageFile, find_images
from trainer.data.sampler import EpochSampler, Share
from trainer.exit_codes import DataError
from trainer.runtime.base import Runtime
from trainer.storage import Folder

Numbers = npt.NDArray[Any]
Images = DecodedImages | StreamedImages
MARGIN_DIVISOR = 8
"""Divisor for the margin of stored images: their sides are an eighth longer than those of crops."""
MIN_CLASSES = 2
"""Minimum number of classes. With one class, every model is right and its loss is 0."""
MEAN, STANDARD_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's colours (0 to 1), with which published models are trained."""


class Crops(NamedTuple):
    """A step's images and labels, on the device, or being copied to the device."""

    pixels: torch.Tensor
    """Bytes, samples x height x width x channels."""
    labels: torch.Tensor
    """Class of each image."""
    copied: torch.cuda.Event | None
    """On CUDA, the event at the end of both copies; else None."""

    def wait(self) -> None:
        """Make the device wait until both copies are done. The host does not wait."""
        if self.copied:
            self.copied.wait()
            stream = torch.cuda.current_stream(self.pixels.device)
            for tensor in (self.pixels, self.labels):
                # The copy stream owns this memory, and must not reuse it before the current stream is done.
                tensor.record_stream(stream)


class FolderImages:
    """ImageNet, Tiny-ImageNet or WebDataset images in a folder of a disk or a bucket."""

    def __init__(self, config: ImagenetConfig, runtime: Runtime) -> None:
        self.side = config.image_size
        self.sample_shape: tuple[int, ...] = (3, self.side, self.side)
        self._stored_side = self.side + self.side // MARGIN_DIVISOR
        self._device = device = runtime.data_device
        self._seed, self._batch, self._epochs = config.seed, config.batch_size, config.epochs
        folder = Folder(config.data_dir)
        train, self.classes = find_images(folder, "train", runtime)
        if config.num_classes not in (ImagenetConfig.num_classes, self.classes):
            raise DataError(
                f"num_classes = {config.num_classes}: must be {self.classes}, the number of classes in "
                f"{config.data_dir}; leave --num-classes out, or set --data-dir to another folder"
            )
        if self.classes < MIN_CLASSES:
            raise DataError(
                f"{config.data_dir} has images of one class; it must have two classes or more: add images of "
                "another class"
            )
        test, _ = find_images(folder, "val", runtime, train_classes=self.classes)
        self._train, self._test = (self._open(config, folder, images, runtime) for images in (train, test))
        self.num_samples, self.num_tests = len(self._train.labels), len(self._test.labels)
        self._sampler: EpochSampler | None = None
        set_device = (lambda: torch.cuda.set_device(device)) if device.type == "cuda" else None
        self._threads = ThreadPoolExecutor(1, "images", set_device)
        self._prefetched: deque[tuple[tuple[int, int], Future[Crops]]] = deque()
        # On CUDA, a second stream copies images while the device computes earlier steps.
        self._copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch has no type
        self._mean = 255 * torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = 255 * torch.tensor(STANDARD_DEVIATION, device=device).view(1, 3, 1, 1)

    def _open(self, config: ImagenetConfig, folder: Folder, images: list[ImageFile], runtime: Runtime) -> Images:
        if config.stream:
            return StreamedImages(folder, images, self._stored_side)
        cache = Path(config.cache_dir or Path(tempfile.gettempdir()) / "trainyard-images")
        return load_cached(
            folder, images, self._stored_side, cache, is_builder=runtime.local_rank == 0, heartbeat=runtime.heartbeat
        )

    @property
    def broken(self) -> Sequence[str]:
        return [*self._train.broken, *self._test.broken]

    def follow(self, sampler: EpochSampler) -> None:
        """Crop the images of the sampler's next steps in advance."""
        self._sampler = sampler

    def batch(self, share: Share, *, world: int) -> Batch:
        step = (share.epoch, share.position)
        while self._prefetched and self._prefetched[0][0] != step:
            self._prefetched.popleft()[1].cancel()
        crops = self._prefetched.popleft()[1].result() if self._prefetched else self._crop_share(share)
        self._prefetch()
        crops.wait()
        return Batch(inputs=self._normalise(crops.pixels), labels=crops.labels, scale=world / share.total)

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield every world-th image of the test set, starting at the rank-th, cropped in the middle."""
        own = np.arange(rank, self.num_tests, world)
        corners = np.full((self._batch, 2), (self._stored_side - self.side) // 2)
        for start in range(0, len(own), self._batch):
            part = own[start : start + self._batch]
            pixels = self._crop(self._test, part, corners[: len(part)], np.zeros(len(part), dtype=bool))
            labels = torch.from_numpy(self._test.labels[part])
            yield self._normalise(to_device(torch.from_numpy(pixels), self._device)), to_device(labels, self._device)

    def _prefetch(self) -> None:
        if self._sampler is None:
            return
        ahead = copy.copy(self._sampler)
        planned = len(self._prefetched)
        for number in range(PREFETCH_STEPS):
            if not ahead.steps_left:
                # Continue during the evaluation, so that the next epoch does not wait for its first images.
                if ahead.epoch + 1 >= self._epochs:
                    return
                ahead.next_epoch()
            share = ahead.next()
            if number >= planned:
                work = self._threads.submit(self._crop_share, share)
                self._prefetched.append(((share.epoch, share.position), work))

    def _crop_share(self, share: Share) -> Crops:
        """Return random crops. Each is mirrored with a probability of one half.

        The crops do not depend on restarts, nor on the number of ranks if the global batch stays the same.
        """
        generator = np.random.default_rng((self._seed, share.epoch, share.position))
        own = slice(share.offset, share.offset + len(share.indices))
        corners = generator.integers(0, self._stored_side - self.side + 1, (share.total, 2))[own]
        mirrored = (generator.random(share.total) < 0.5)[own]
        indices = share.indices.numpy()
        pixels = torch.from_numpy(self._crop(self._train, indices, corners, mirrored))
        labels = torch.from_numpy(self._train.labels[indices])
        if self._copy_stream is None:
            return Crops(pixels, labels, None)
        with torch.cuda.stream(self._copy_stream):
            return Crops(
                to_device(pixels, self._device), to_device(labels, self._device), self._copy_stream.record_event()
            )

    def _crop(self, images: Images, indices: Numbers, corners: Numbers, mirrored: Numbers) -> Pixels:
        side = self.side
        found = np.empty((len(indices), side, side, 3), dtype=np.uint8)
        for target, whole, (top, left), mirror in zip(found, images.fetch(indices), corners, mirrored, strict=True):
            crop = whole[top : top + side, left : left + side]
            target[:] = crop[:, ::-1] if mirror else crop
        return found

    def _normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return float images, samples x channels x height x width, in channels-last memory like `pixels`."""
        return pixels.permute(0, 3, 1, 2).float().sub_(self._mean).div_(self._deviation)
