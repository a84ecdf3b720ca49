"""Images that stay in a bucket: a rank reads those of its own steps, once an epoch, and keeps none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from trainer.exit_codes import DataError
from trainer.image_cache import Pixels, decode
from trainer.image_files import IMAGE_ENDINGS
from trainer.storage import Folder

READERS = 16
"""Images that a rank reads at the same time: a bucket answers late, and many at once."""


class StreamedImages:
    """The images of a split, objects `CLASS/NAME` below a folder of a bucket."""

    broken: Sequence[str] = ()
    """Known only when an image is read, which then ends the run."""

    def __init__(self, folder: Folder, names: Sequence[str], labels: Sequence[int], side: int) -> None:
        self._folder, self._names, self._side = folder, names, side
        self.labels: npt.NDArray[np.int64] = np.array(labels)
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="bucket")

    def take(self, indices: npt.NDArray[np.int64]) -> Iterable[Pixels]:
        """The images of these numbers, read now. Raises DataError and StorageError naming the image."""
        return self._threads.map(self._read, [self._names[index] for index in indices])

    def _read(self, name: str) -> Pixels:
        content = self._folder.read(name)
        try:
            return decode(content, self._side)
        except ValueError as error:
            raise DataError(f"{self._folder.url}/{name} is no image ({error}): replace or remove it") from None


def streamed(url: str, side: int) -> tuple[StreamedImages, StreamedImages, int]:
    """The training set and the test set below a URL (`train/CLASS/*.JPEG`, `val/CLASS/*.JPEG`), and its classes.

    Raises DataError where there are no images, or other layouts, which are read from disks alone.
    """
    found = {split: _images(Folder(url).child(split)) for split in ("train", "val")}
    for split, names in found.items():
        if not names:
            raise DataError(
                f"{url} has no images of {split}: set --data-dir to a bucket's folder with {split}/CLASS/*.JPEG"
            )
    classes = sorted({_class(name) for name in found["train"]})
    if unknown := sorted({_class(name) for name in found["val"]} - set(classes)):
        raise DataError(f"{url}/val: there is no class {unknown[0]!r} in the training set; remove it or add it there")
    numbers = {name: number for number, name in enumerate(classes)}
    train, tests = (
        StreamedImages(Folder(url).child(split), names, [numbers[_class(name)] for name in names], side)
        for split, names in found.items()
    )
    return train, tests, len(classes)


def _images(folder: Folder) -> list[str]:
    """Images exactly one folder below."""
    return [name for name in folder.files() if name.count("/") == 1 and name.lower().endswith(IMAGE_ENDINGS)]


def _class(name: str) -> str:
    return name.partition("/")[0]
