"""Files and folders of the images that Trainyard builds. Pure."""

from __future__ import annotations

import functools
from pathlib import Path, PurePosixPath

from infra.image.builtin_images import OWN_IMAGES, TRAINER_IMAGE, WORK_FOLDER

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = ("/usr", f"{WORK_FOLDER}/venv")
"""Folders of an image whose files are unknown here."""


def in_image(path: str) -> str:
    """Return the absolute path of a file that a program opens in the image's working directory."""
    return str(WORK_FOLDER / path)


@functools.cache
def python_files(image: str) -> frozenset[str]:
    """Return the paths of the Python files in an image, without those of packages."""
    found = set()
    for source, target in OWN_IMAGES.get(image, TRAINER_IMAGE).sources.items():
        path = PROJECT / source
        files = [path] if path.suffix == ".py" else path.rglob("*.py")
        found |= {in_image(str(PurePosixPath(target) / each.relative_to(path))) for each in files}
    return frozenset(found)


def data_folders(image: str) -> frozenset[str]:
    """Return the paths of the folders with data in an image."""
    return frozenset(map(in_image, OWN_IMAGES.get(image, TRAINER_IMAGE).data))
