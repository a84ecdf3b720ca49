"""Which files the images have that Trainyard builds: what their Dockerfiles copy of what is there. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from infra.image.builtin_images import OWN_IMAGES, TRAINER

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILES: Mapping[str, str] = MappingProxyType(
    {TRAINER: "trainer/Dockerfile", **{name: image.dockerfile for name, image in OWN_IMAGES.items()}}
)
"""Image -> its Dockerfile, in the project."""
WORK_FOLDER = PurePosixPath("/opt/trainyard")
"""The WORKDIR of all of them but that of etcd, which runs nothing of a job."""
OF_PACKAGES = ("/usr", f"{WORK_FOLDER}/venv")
"""Folders of an image that packages fill, of which nothing is known here."""
_COPY = re.compile(r"^COPY (?P<source>[^-\s]\S*) (?P<target>\S+)$", re.MULTILINE)
_MADE = re.compile(r"^RUN python \S+\.py (?P<target>\S+)$", re.MULTILINE)


def in_image(path: str) -> str:
    """A path as a program finds it that is started in the image's folder."""
    return str(WORK_FOLDER / path)


@functools.cache
def python_files(image: str) -> frozenset[str]:
    """Paths of the Python files in an image of Trainyard's own, but for those of packages."""
    return frozenset(
        str(target / each.relative_to(PROJECT / source)) if each != PROJECT / source else str(target)
        for source, target in _copies(image)
        for each in ((PROJECT / source), *(PROJECT / source).rglob("*.py"))
        if each.suffix == ".py" and each.is_file()
    )


@functools.cache
def data_folders(image: str) -> frozenset[str]:
    """Paths of the folders with data in an image of Trainyard's own: what the build brings, or makes."""
    brought = {str(target) for source, target in _copies(image) if not (PROJECT / source).exists()}
    return frozenset(brought | {in_image(match["target"]) for match in _MADE.finditer(_last_stage(image))})


def _copies(image: str) -> Iterator[tuple[str, PurePosixPath]]:
    """What the build copies from its context, and where to."""
    for match in _COPY.finditer(_last_stage(image)):
        yield match["source"], WORK_FOLDER / match["target"]


def _last_stage(image: str) -> str:
    """The lines of a Dockerfile that say what stays in the image."""
    return (PROJECT / DOCKERFILES[image]).read_text(encoding="utf-8").rpartition("\nFROM ")[2]
