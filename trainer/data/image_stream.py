"""Images read from a disk or a bucket at the steps that need them; nothing of them is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from trainer.data.batch import NO_LABEL
from trainer.data.image_cache import BROKEN_SHARE, Pixels, decoded
from trainer.data.image_files import ImageFile
from trainer.exit_codes import DataError
from trainer.storage import Folder

READERS = 16
"""Images that are asked for at the same time: a bucket answers each after tens of milliseconds."""
ENOUGH = 100
"""Images that must have been read before the share of broken ones says something."""


class StreamedImages:
    """The images of a split; a broken one is named when it is met, and teaches nothing."""

    def __init__(self, source: Folder, images: list[ImageFile], side: int) -> None:
        self._source, self._images, self._side = source, images, side
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="stream")
        self._met: set[int] = set()
        self.labels = np.array([image.label for image in images])
        """Class of each image."""
        self.broken: list[str] = []
        """Names of the images that could not be decoded so far, each with the reason."""

    def fetch(self, indices: npt.NDArray[np.int64]) -> list[Pixels]:
        """The pixels of these images, height x width x 3; black where there are none.

        Raises StorageError where the bucket does not answer, and DataError where too many images are broken.
        """
        ask = self._threads.map(lambda index: decoded(self._source, self._images[index], self._side), indices)
        pixels = []
        for index, found in zip(indices.tolist(), ask, strict=True):
            if isinstance(found, str):
                self._leave_out(index, found)
                found = np.zeros((self._side, self._side, 3), dtype=np.uint8)
            pixels.append(found)
            self._met.add(index)
        if len(self.broken) > BROKEN_SHARE * max(len(self._met), min(ENOUGH, len(self._images))):
            first = self.broken[0]
            raise DataError(
                f"{len(self.broken)} of {len(self._met)} images are broken, the first: {first}; look at the data set"
            )
        return pixels

    def _leave_out(self, index: int, reason: str) -> None:
        if self.labels[index] != NO_LABEL:
            self.labels[index] = NO_LABEL
            self.broken.append(f"{self._images[index].name}: {reason}")
