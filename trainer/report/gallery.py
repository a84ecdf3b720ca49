"""Confusion matrix and sample images of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainer.runtime.base import Runtime

SAMPLES = 8
"""Number of images per rank."""
WHITE = 255


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An image of the test set."""

    pixels: npt.NDArray[np.uint8]
    """Height x width, or x 3 if it has colours, stretched to 0..255."""
    label: int
    """Its class."""
    predicted: int
    """The class that the model predicts."""


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Images and counts for a sink that can display them."""

    confusion: npt.NDArray[np.int64] | None
    """Number of test samples per class (row) and predicted class (column), over all ranks. Only rank 0 has it."""
    samples: list[Sample] = field(default_factory=list)
    """The first test images of this rank."""


class Collector:
    """Collect a gallery during an evaluation. Counting stays on the device."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self._classes = classes
        # One more element for samples without a class.
        self._counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=device)
        self._samples: list[Sample] = []

    def add(self, images: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch of the test set and the model's output."""
        predicted = logits.argmax(dim=1)
        places = torch.where(labels >= 0, labels * self._classes + predicted, self._classes**2)
        self._counts += torch.bincount(places, minlength=len(self._counts))
        for place in range(min(SAMPLES - len(self._samples), len(labels))):
            pixels = _to_pixels(images[place])
            self._samples.append(Sample(pixels=pixels, label=int(labels[place]), predicted=int(predicted[place])))

    def take(self, runtime: Runtime) -> Gallery:
        """Return the gallery of this rank. Every rank must call it."""
        counts = runtime.sum(self._counts)[:-1].cpu().numpy().reshape(self._classes, self._classes)
        return Gallery(confusion=counts if runtime.rank == 0 else None, samples=self._samples)


def _to_pixels(image: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return an image tensor (channels x height x width, any range) as pixels to display."""
    plain = image.detach().float().cpu()
    low, high = plain.amin(), plain.amax()
    levels: npt.NDArray[Any] = ((plain - low) / (high - low).clamp(min=1e-9) * WHITE).byte().numpy()
    return levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)
