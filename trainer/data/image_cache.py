"""Decoded images: from a cache file that all ranks of a host map into memory, or decoded for each step."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainer.data.datasets import NO_LABEL
from trainer.data.image_files import ImageFile
from trainer.exit_codes import DataError, StorageError
from trainer.storage import Folder

if TYPE_CHECKING:
    from PIL import Image

Pixels = npt.NDArray[np.uint8]
Index = tuple[list[int], list[str]]
"""Numbers of the images in a cache, in order, and names of the unreadable images, each with the reason."""
INDEX = "index.json"
"""File with the Index of a cache, written last."""
LOCK = "lock"
"""Lock file in a folder of caches. The process that builds a cache locks this file."""
DRAFT_SUFFIX = ".draft"
"""Suffix of the folder name of an unfinished cache."""
DRAFT_PATTERN = "[0-9a-f]" * 16 + DRAFT_SUFFIX
"""Pattern of the folder names of unfinished caches. In the user's folder, the trainer removes only these and damaged
caches."""
POLL_SECONDS = 0.1
"""Seconds between two checks of a lock or of a cache that another process builds."""
PIXELS = "pixels"
"""File of the decoded images."""
VERSION = 4
"""Version of the cache. Raise it when images are decoded differently, so that no run uses an older cache."""
GREY_LEVELS_RATIO = 257
"""Ratio of 16-bit grey to 8-bit grey: white is 65535 = 255 x 257."""
SPARE_DISK_SHARE = 0.1
"""Share of the disk that a cache leaves free. Below that share the kubelet starts to evict pods."""
FREE_SPACE_SHARE = 0.01
"""Share of the free space that a cache may always use, because it is negligible."""
HEARTBEAT_IMAGES = 256
"""Images decoded between two heartbeats."""
BROKEN_SHARE = 0.1
"""Share of broken images above which the trainer rejects the whole data set."""
PARALLEL_READS = 16
"""Number of parallel reads, because a bucket takes tens of milliseconds to answer one."""
MIN_READ_IMAGES = 100
"""Minimum number of images to apply BROKEN_SHARE to, so that a few early broken images do not end a run."""


@dataclass(frozen=True, kw_only=True)
class DecodedImages:
    """The readable images of a split, decoded once."""

    pixels: Pixels
    """Images x height x width x 3 bytes, mapped from a file."""
    labels: npt.NDArray[np.int64]
    """Class of each image."""
    broken: Sequence[str]
    """Names of the broken images, each with the reason."""

    def fetch(self, indices: npt.NDArray[np.int64]) -> list[Pixels]:
        """Return the pixels of these images, height x width x 3."""
        return [self.pixels[index] for index in indices]


def decode(content: bytes, side: int) -> Pixels:
    """Return an image as `side` x `side` x 3 bytes. Scale it so that the shorter edge fits, and keep the middle.

    Raises ValueError for data that is not a complete image.
    """
    # Imported here because runs on digits or generated images do not need it.
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content)) as image:
            # Let the decoder decode a JPEG at a fraction of its size if that is enough.
            image.draft("RGB", (side, side))
            return np.asarray(ImageOps.fit(_to_rgb(image), (side, side), Image.Resampling.BILINEAR), dtype=np.uint8)
    except Exception as error:  # Pillow's formats raise many types: RuntimeError, struct.error, MemoryError
        raise ValueError(str(error).split("<")[0].strip() or type(error).__name__) from None


def _to_rgb(image: Image.Image) -> Image.Image:
    """Return the image in RGB. Scale 16-bit greys to 8 bits, because Pillow would clip them at 255."""
    from PIL import Image

    if image.mode == "I" or image.mode.startswith("I;16"):
        greys = (np.asarray(image, dtype=np.int64) + GREY_LEVELS_RATIO // 2) // GREY_LEVELS_RATIO
        image = Image.fromarray(greys.clip(0, 255).astype(np.uint8))
    return image.convert("RGB")


def load_cached(
    source: Folder, images: list[ImageFile], side: int, folder: Path, *, is_builder: bool, heartbeat: Callable[[], None]
) -> DecodedImages:
    """Return the decoded images of `source` from a cache in `folder`. Build the cache first if it is missing.

    One rank of a host builds the cache, and the others wait. Raises StorageError if the disk is too small and
    DataError if too many images are broken.
    """
    facts = [(image.name, image.start, image.size, image.label, image.version) for image in images]
    digest = hashlib.sha256(json.dumps([VERSION, side, facts]).encode())
    cache = folder / digest.hexdigest()[:16]
    try:
        if is_builder and not _index(cache, side):
            with _locked(folder, heartbeat):
                if not _index(cache, side):
                    _build(source, images, side, cache, heartbeat)
        while (index := _index(cache, side)) is None:
            time.sleep(POLL_SECONDS)
            heartbeat()
    except OSError as error:
        raise StorageError(f"{cache} cannot be used: {error.strerror or error}; set --cache-dir") from None
    good, broken = index
    if len(broken) > BROKEN_SHARE * len(images):
        raise _too_many_broken(broken, len(images))
    shape = (len(good), side, side, 3)
    pixels: Pixels = np.memmap(cache / PIXELS, dtype=np.uint8, mode="r", shape=shape)
    return DecodedImages(pixels=pixels, labels=np.array([images[number].label for number in good]), broken=broken)


def _too_many_broken(broken: Sequence[str], seen: int) -> DataError:
    allowed = f"at most {BROKEN_SHARE:.0%} may be; repair or remove them"
    return DataError(f"{len(broken)} of {seen} images are broken, the first: {broken[0]}; {allowed}")


@contextmanager
def _locked(folder: Path, heartbeat: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock, so that only one process builds a cache. The kernel releases a killed process's lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(POLL_SECONDS)
                heartbeat()
        yield


def _index(cache: Path, side: int) -> Index | None:
    """Return a cache's index, or None if there is no complete cache."""
    try:
        good, broken = json.loads((cache / INDEX).read_text(encoding="utf-8"))
        return (good, broken) if (cache / PIXELS).stat().st_size == len(good) * side * side * 3 else None
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def _build(source: Folder, images: list[ImageFile], side: int, cache: Path, heartbeat: Callable[[], None]) -> None:
    """Decode all images into a new folder, then rename it to the cache's path."""
    # Killed processes leave drafts. A cleaner of temporary folders can leave a cache without some of its files.
    for leftover in (cache, *cache.parent.glob(DRAFT_PATTERN)):
        shutil.rmtree(leftover, ignore_errors=True)
    needed = len(images) * side * side * 3
    disk = shutil.disk_usage(cache.parent)
    if needed > max(disk.free - SPARE_DISK_SHARE * disk.total, FREE_SPACE_SHARE * disk.free):
        raise StorageError(
            f"{cache.parent} has {disk.free / 2**30:.1f} GiB free, and a tenth of the disk must stay free; the disk "
            f"must have space for {needed / 2**30:.1f} GiB of decoded images: set --cache-dir, or lower --image-size"
        )
    draft = cache.with_suffix(DRAFT_SUFFIX)
    draft.mkdir()
    try:
        with (draft / PIXELS).open("wb") as file:
            index = _fill(file, source, images, side, heartbeat)
        (draft / INDEX).write_text(json.dumps(index), encoding="utf-8")
        draft.rename(cache)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fill(file: IO[bytes], source: Folder, images: list[ImageFile], side: int, heartbeat: Callable[[], None]) -> Index:
    """Write the pixels of all readable images and return the index."""
    good: list[int] = []
    broken: list[str] = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for start in range(0, len(images), HEARTBEAT_IMAGES):
            part = images[start : start + HEARTBEAT_IMAGES]
            decoded = threads.map(lambda image: try_decode(source, image, side), part)
            for number, found in enumerate(decoded, start=start):
                if isinstance(found, str):
                    broken.append(f"{images[number].name}: {found}")
                else:
                    good.append(number)
                    file.write(found.data)
            heartbeat()
    file.flush()
    return good, broken


def try_decode(source: Folder, image: ImageFile, side: int) -> Pixels | str:
    """Return the image's pixels, or the reason why it is broken. Raises StorageError if a bucket does not answer."""
    try:
        return decode(source.read_part(image.file, image.start, image.size), side)
    except (ValueError, StorageError) as error:
        if isinstance(error, StorageError) and not source.is_local:
            raise
        return str(error)


class StreamedImages:
    """The images of a split, decoded for each step. Broken images do not contribute to the gradient."""

    def __init__(self, source: Folder, images: list[ImageFile], side: int) -> None:
        self._source, self._images, self._side = source, images, side
        self._threads = ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="stream")
        self._seen: set[int] = set()
        self.labels = np.array([image.label for image in images])
        """Class of each image."""
        self.broken: list[str] = []
        """Names of the broken images so far, each with the reason."""

    def fetch(self, indices: npt.NDArray[np.int64]) -> list[Pixels]:
        """Return the pixels of these images, height x width x 3. Broken images are black.

        Raises StorageError if the bucket does not answer, and DataError if too many images are broken.
        """
        decoded = self._threads.map(lambda index: try_decode(self._source, self._images[index], self._side), indices)
        pixels = []
        for index, found in zip(indices.tolist(), decoded, strict=True):
            if isinstance(found, str):
                if self.labels[index] != NO_LABEL:
                    self.labels[index] = NO_LABEL
                    self.broken.append(f"{self._images[index].name}: {found}")
                found = np.zeros((self._side, self._side, 3), dtype=np.uint8)
            pixels.append(found)
            self._seen.add(index)
        if len(self.broken) > BROKEN_SHARE * max(len(self._seen), min(MIN_READ_IMAGES, len(self._images))):
            raise _too_many_broken(self.broken, len(self._seen))
        return pixels
