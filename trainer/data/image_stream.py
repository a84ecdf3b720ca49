"""Images that are read from a disk or a bucket when a step needs them, without a cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from trainer.data.batch import NO_LABEL
from trainer.data.image_cache import BROKEN_SHARE, Pixels, try_decode
from trainer.data.image_files import ImageFile
from trainer.exit_codes import DataError
from trainer.storage import Folder

PARALLEL_READS = 16
"""Number of parallel reads: a bucket takes tens of milliseconds to answer each."""
MIN_READ_IMAGES = 100
"""Least number of images to read before the share of broken images is judged."""


class StreamedImages:
    """The images of a split. A broken image is reported when it is read and does not contribute to the gradient."""

    def __init__(self, source: Folder, images: list[ImageFile], side: int) -> None:
        self._source, self._images, self._side = source, images, side
        self._threads = ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="stream")
        self._seen: set[int] = set()
        self.labels = np.array([image.label for image in images])
        """Class of each image."""
        self.broken: list[str] = []
        """Names of the images that could not be decoded so far, each with the reason."""

    def fetch(self, indices: npt.NDArray[np.int64]) -> list[Pixels]:
        """Return the pixels of these images, height x width x 3. Broken images are black.

        Raises StorageError if the bucket does not answer, and DataError if too many images are broken.
        """
        ask = self._threads.map(lambda index: try_decode(self._source, self._images[index], self._side), indices)
        pixels = []
        for index, found in zip(indices.tolist(), ask, strict=True):
            if isinstance(found, str):
                self._mark_broken(index, found)
                found = np.zeros((self._side, self._side, 3), dtype=np.uint8)
            pixels.append(found)
            self._seen.add(index)
        if len(self.broken) > BROKEN_SHARE * max(len(self._seen), min(MIN_READ_IMAGES, len(self._images))):
            first = self.broken[0]
            raise DataError(
                f"{len(self.broken)} of {len(self._seen)} images are broken, the first: {first}; look at the data set"
            )
        return pixels

    def _mark_broken(self, index: int, reason: str) -> None:
        if self.labels[index] != NO_LABEL:
            self.labels[index] = NO_LABEL
            self.broken.append(f"{self._images[index].name}: {reason}")
