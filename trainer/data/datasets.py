"""Interface of data sets and their batches; the data sets of handwritten digits and of generated images."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn import functional

from trainer.config import DigitsConfig, ImagenetConfig
from trainer.data.sampler import EpochSampler, Share
from trainer.exit_codes import DataError

if TYPE_CHECKING:
    from trainer.runtime.base import Runtime

NO_LABEL = -100
"""Class of a sample without a label. torch's cross entropy ignores it."""
PREFETCH_STEPS = 3
"""Number of steps whose batches to prepare in advance."""
DIGIT_IMAGES = "digits-images-idx3-ubyte"
DIGIT_LABELS = "digits-labels-idx1-ubyte"
DIGITS = 10
DIGIT_SIDE = 28
"""Height and width of a digit, in pixels."""
TEST_EVERY = 5
"""Every fifth digit, in the order of the classes, belongs to the test set."""
TEST_BATCH = 250
"""Samples in a batch of the digits' evaluation."""
UNSIGNED_BYTES = 8
"""Code of the type unsigned byte in the IDX format."""
GZIP = b"\x1f\x8b"
"""First bytes of a gzip file. Downloads of the digits are often compressed."""
MAX_ROTATION_DEGREES = 10.0
MAX_SHIFT_PIXELS = 2.0
MAX_SCALE_CHANGE = 0.1
NUM_SEEDS = 2**64
"""Number of seeds that torch accepts."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples of one rank in one step."""

    inputs: torch.Tensor
    """Images as a float tensor of samples x channels x height x width, or tokens of texts. On the device."""
    labels: torch.Tensor
    """Class of each image, or the next token of each token. On the device."""
    scale: float | torch.Tensor
    """Factor for this rank's sum of losses. The mean of all ranks' scaled sums is the mean loss over all labels."""


class Data(Protocol):
    """A training set and a test set."""

    classes: int
    """Number of classes, or of tokens in the vocabulary."""
    num_samples: int
    """Samples of the training set."""
    num_tests: int
    """Samples of the test set."""
    sample_shape: tuple[int, ...]
    """Sizes of an image (channels, height, width), or the number of tokens in a sample."""

    @property
    def broken(self) -> Sequence[str]:
        """Samples found to be unreadable so far, each with the reason. They do not contribute to the gradient."""
        return ()

    def follow(self, sampler: EpochSampler) -> None:
        """Prepare samples of the sampler's next steps in advance. Data in memory does nothing here."""
        del sampler

    def batch(self, share: Share, *, world: int) -> Batch:
        """Return this rank's samples of one training step."""

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's part of the test set. Every sample is in exactly one rank's part."""


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a host tensor on the device. On CUDA the current stream waits for the copy, and the host does not."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Digits(Data):
    """Handwritten digits, all in the device's memory. A fixed fifth of each class, rounded, is the test set."""

    sample_shape = (1, DIGIT_SIDE, DIGIT_SIDE)

    def __init__(self, config: DigitsConfig, device: torch.device) -> None:
        folder = Path(config.data_dir)
        pixels = read_idx(folder / DIGIT_IMAGES, dimensions=3)
        labels = read_idx(folder / DIGIT_LABELS, dimensions=1).long()
        count, height, width = pixels.shape
        is_square, highest = height == width == DIGIT_SIDE, max(labels.tolist(), default=0)
        if count < TEST_EVERY or count != len(labels) or not is_square or highest >= DIGITS:
            raise DataError(
                f"{folder} has {count} images of {height} x {width} pixels and {len(labels)} labels up to {highest}; "
                f"it must have at least {TEST_EVERY} images of {DIGIT_SIDE} x {DIGIT_SIDE} pixels and as many labels "
                f"from 0 to {DIGITS - 1}: create the files again"
            )
        self.classes = DIGITS
        images = pixels.unsqueeze(1).float()
        images = ((images - images.mean()) / images.std()).to(device)
        by_class = labels.argsort(stable=True)
        held_out = torch.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
        train, test = by_class[~held_out].to(device), by_class[held_out].to(device)
        labels = labels.to(device)
        self._train_images, self._train_labels = images[train], labels[train]
        self._test_images, self._test_labels = images[test], labels[test]
        self.num_samples, self.num_tests = len(train), len(test)
        self._augment, self._seed = config.augment, config.seed

    def batch(self, share: Share, *, world: int) -> Batch:
        indices = to_device(share.indices, self._train_images.device)
        images = self._train_images[indices]
        if self._augment:
            images = distort(images, share, seed=self._seed)
        return Batch(inputs=images, labels=self._train_labels[indices], scale=world / share.total)

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield every world-th digit of the test set, starting at the rank-th."""
        images, labels = self._test_images[rank::world], self._test_labels[rank::world]
        for start in range(0, len(labels), TEST_BATCH):
            yield images[start : start + TEST_BATCH], labels[start : start + TEST_BATCH]


class GeneratedImages(Data):
    """A batch of random images, generated once on the device and used at every step."""

    def __init__(self, config: ImagenetConfig, device: torch.device, *, rank: int, world: int) -> None:
        self.num_samples = config.steps_per_epoch * config.batch_size * world
        generator = torch.Generator(device).manual_seed(config.seed * 1_000_003 + rank)
        self.sample_shape = (3, config.image_size, config.image_size)
        layout = torch.channels_last if config.channels_last else torch.contiguous_format
        self._images = torch.randn(
            config.batch_size, *self.sample_shape, generator=generator, device=device
        ).contiguous(memory_format=layout)
        self._labels = torch.randint(config.num_classes, (config.batch_size,), generator=generator, device=device)
        self.classes = config.num_classes
        self.num_tests = config.test_steps * config.batch_size * world
        self._test_steps = config.test_steps

    def batch(self, share: Share, *, world: int) -> Batch:
        """Return as many of the images as the step needs."""
        count = len(share.indices)
        return Batch(inputs=self._images[:count], labels=self._labels[:count], scale=world / share.total)

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the same images again, to measure speed and whether a model can memorise them."""
        del rank, world
        for _ in range(self._test_steps):
            yield self._images, self._labels


def load_data(config: DigitsConfig | ImagenetConfig, runtime: Runtime) -> Data:
    """Return the data of a recipe. Raises DataError if files are missing or broken."""
    device, rank, world = runtime.data_device, runtime.rank, runtime.world
    if isinstance(config, DigitsConfig):
        return Digits(config, device)
    if not config.fake_data:
        # Imported here because the other recipes do not need it.
        from trainer.data.images import FolderImages

        return FolderImages(config, runtime)
    return GeneratedImages(config, device, rank=rank, world=world)


def read_idx(path: Path, *, dimensions: int) -> torch.Tensor:
    """Return the elements of an IDX file of bytes, as a tensor with the sizes in the file.

    The file has two zero bytes, type, number of dimensions, big-endian sizes, elements. Raises DataError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): set --data-dir to the digits' folder") from None
    start = 4 + 4 * dimensions
    if content[:2] == GZIP:
        raise DataError(f"{path} is compressed; unpack it with gunzip")
    if content[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]) or len(content) < start:
        raise DataError(f"{path} is not an IDX file of bytes in {dimensions} dimensions; create it again")
    sizes = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(sizes):
        raise DataError(f"{path} has {len(content) - start} bytes of data, not {math.prod(sizes)}; create it again")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).view(sizes)


def distort(images: torch.Tensor, share: Share, *, seed: int) -> torch.Tensor:
    """Shift, rotate and scale each image by its own random amount.

    The amounts depend only on the seed, the epoch, the step's position and the sample's place in the step. They do not
    depend on restarts, nor on the number of ranks if the global batch stays the same.
    """
    step_seed = (seed * 1_000_003 + share.epoch) * 1_000_003 + share.position
    generator = torch.Generator().manual_seed(step_seed % NUM_SEEDS)
    amounts = torch.rand(share.total, 4, generator=generator)[share.offset : share.offset + len(images)] * 2 - 1
    angle = amounts[:, 0] * math.radians(MAX_ROTATION_DEGREES)
    scale = 1 + amounts[:, 1] * MAX_SCALE_CHANGE
    shift = amounts[:, 2:] * (2 * MAX_SHIFT_PIXELS / images.shape[-1])
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    rows = torch.stack([cosine, -sine, shift[:, 0], sine, cosine, shift[:, 1]], dim=1).view(-1, 2, 3)
    grid = functional.affine_grid(to_device(rows, images.device), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
