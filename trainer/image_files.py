"""Where images lie: ImageNet's and Tiny-ImageNet's folders, and WebDataset's shards, read without unpacking them."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

from trainer.exit_codes import DataError

IMAGE_ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
"""Endings of image files, in small letters."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny-ImageNet's list of its test images' classes: file name, class, and a box, separated by tabs."""


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """Where one image's bytes are."""

    path: str
    """A file: the image itself, or a shard."""
    start: int
    """Where in the file the image begins, in bytes."""
    size: int
    """How many bytes the image has."""
    name: str
    """What to call it when it is broken."""
    label: int
    """Number of its class."""

    def read(self) -> bytes:
        """The image as it was encoded; raises OSError."""
        with Path(self.path).open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)


def find_images(folder: Path, split: str) -> tuple[list[ImageFile], int]:
    """The images of `train` or `val` in a fixed order, and the number of classes.

    Understands `SPLIT/CLASS/*.JPEG` (ImageNet), `SPLIT/CLASS/images/*.JPEG` with `val/val_annotations.txt`
    (Tiny-ImageNet) and `SPLIT-*.tar` with `KEY.jpg` beside `KEY.cls` or `KEY.json` (WebDataset,
    https://github.com/webdataset/webdataset#the-webdataset-format). Raises DataError naming the folder.
    """
    try:
        shards = sorted(folder.glob(f"{split}-*.tar"))
        if shards:
            images = [image for shard in shards for image in _in_shard(shard)]
            classes = _classes_of_shards(folder, images)
        else:
            names = sorted(entry.name for entry in (folder / "train").iterdir() if entry.is_dir())
            annotations = folder / split / ANNOTATIONS
            numbers = {name: number for number, name in enumerate(names)}
            if split == "val" and annotations.exists():
                images = _annotated(annotations, numbers)
            else:
                images = _in_classes(folder / split, numbers)
            classes = len(names)
    except OSError as error:
        raise DataError(f"{error.filename or folder} cannot be read ({error.strerror}): set --data-dir") from None
    if not images:
        raise DataError(f"{folder} has no images of {split}: set --data-dir to a folder with train/ or train-*.tar")
    return images, classes


def _in_classes(folder: Path, numbers: dict[str, int]) -> list[ImageFile]:
    images = []
    for name in sorted(entry.name for entry in folder.iterdir() if entry.is_dir()):
        if name not in numbers:
            raise DataError(
                f"{folder / name}: there is no class {name!r} in the training set; remove it or add it there"
            )
        inner = folder / name / "images"
        for entry in sorted(os.scandir(inner if inner.is_dir() else folder / name), key=lambda found: found.name):
            if entry.name.lower().endswith(IMAGE_ENDINGS):
                images.append(_whole(entry.path, numbers[name]))
    return images


def _annotated(annotations: Path, numbers: dict[str, int]) -> list[ImageFile]:
    images = []
    for line in annotations.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition("\t")
        of_class = rest.partition("\t")[0]
        if of_class not in numbers:
            raise DataError(f"{annotations}: there is no class {of_class!r} in the training set; remove the line")
        images.append(_whole(str(annotations.parent / "images" / name), numbers[of_class]))
    return images


def _whole(path: str, label: int) -> ImageFile:
    return ImageFile(path=path, start=0, size=Path(path).stat().st_size, name=path, label=label)


def _in_shard(shard: Path) -> list[ImageFile]:
    """The images of a shard; those without a class are an error."""
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(shard) as archive:
            for member in archive:
                folder, _, last = member.name.rpartition("/")
                stem, _, ending = last.partition(".")
                key, ending = f"{folder}/{stem}", "." + ending.lower()
                if ending in IMAGE_ENDINGS:
                    images[key] = member
                elif ending in (".cls", ".json"):
                    content = archive.extractfile(member)
                    assert content, f"{member.name} is a file"
                    labels[key] = _label(content.read(), ending)
    except (tarfile.TarError, ValueError, KeyError, AssertionError) as error:
        raise DataError(f"{shard} is broken ({error}): make it again") from None
    unknown = sorted(images.keys() - labels.keys())
    if unknown:
        raise DataError(f"{shard}: {images[unknown[0]].name} has no .cls or .json beside it; make the shard again")
    return [
        ImageFile(
            path=str(shard),
            start=member.offset_data,
            size=member.size,
            name=f"{shard}:{member.name}",
            label=labels[key],
        )
        for key, member in images.items()
    ]


def _label(content: bytes, ending: str) -> int:
    return int(content) if ending == ".cls" else int(json.loads(content)["label"])


def _classes_of_shards(folder: Path, images: list[ImageFile]) -> int:
    """The number of lines of `classes.txt` where it is there, else one more than the highest number."""
    names = folder / "classes.txt"
    if names.exists():
        return len(names.read_text(encoding="utf-8").split())
    return 1 + max((image.label for image in images), default=0)
