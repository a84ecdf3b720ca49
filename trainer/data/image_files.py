"""Find images on a disk or in a bucket, in folders (ImageNet, Tiny-ImageNet) or in WebDataset shards."""

from __future__ import annotations

import json
import tarfile
from fnmatch import fnmatch
from typing import IO, TYPE_CHECKING, NamedTuple

from trainer.exit_codes import DataError
from trainer.reporter import warn
from trainer.rules import MAX_CLASSES
from trainer.storage import FileFacts, Folder
from trainer.watchdog import wait_for_ranks

if TYPE_CHECKING:
    from trainer.runtime.base import Runtime

IMAGE_SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
)
"""Lower-case suffixes of image files."""
NOTES_SUFFIX = ".txt"
"""Suffix of text files next to images, such as Tiny-ImageNet's bounding boxes. The trainer skips them silently."""
ANNOTATIONS = "val/val_annotations.txt"
"""Tiny-ImageNet's list of validation images, which the trainer uses as test images.

Each line has file name, class and box, separated by tabs.
"""
CLASS_NAMES = "classes.txt"
"""Optional names of the classes of shards, one per line."""


class ImageFile(NamedTuple):
    """The location of one image's bytes in a data set's folder."""

    file: str
    """Path of the image or shard."""
    start: int
    """Offset of the image in the file, in bytes."""
    size: int
    """Size of the image in bytes."""
    version: str
    """Version of the file, which changes when the file is written again."""
    name: str
    """Name of the image in messages."""
    label: int
    """Number of the image's class."""


def find_images(folder: Folder, split: str, runtime: Runtime, *, train_classes: int = 0) -> tuple[list[ImageFile], int]:
    """Return the images of `train` or `val` in a fixed order, and the number of classes.

    `train_classes` is the training set's number of classes. Raises DataError for missing or invalid images. Layouts:
    - ImageNet: `SPLIT/CLASS/*.JPEG`
    - Tiny-ImageNet: `SPLIT/CLASS/images/*.JPEG` with `val/val_annotations.txt`
    - WebDataset, https://github.com/webdataset/webdataset#the-webdataset-format: `SPLIT-*.tar` with `KEY.jpg` and
      either `KEY.cls` or `KEY.json`
    """
    found = folder.names()
    if shards := [name for name in found if fnmatch(name, f"{split}-*.tar")]:
        images = _in_shards(folder, split, shards, runtime)
        names = _lines(folder, CLASS_NAMES) if CLASS_NAMES in found else []
        classes = train_classes or len(names) or 1 + max((image.label for image in images), default=0)
        for image in images:
            if image.label >= classes:
                which = "of the training set" if train_classes else f"named in {CLASS_NAMES}"
                raise DataError(
                    f"{image.name} has class {image.label}; must be 0 to {classes - 1}, the classes {which}: "
                    "create the shard again, or add the missing classes"
                )
    else:
        class_names = [name for name in folder.child("train").folders() if not _is_hidden(name)]
        numbers = {name: number for number, name in enumerate(class_names)}
        images = _in_folders(folder, split, numbers, runtime) if split in found else []
        classes = len(numbers)
    if not images:
        remedy = "set --data-dir to a folder with them" if split == "train" else "add them"
        raise DataError(
            f"{folder.url} has no images of {split}; it must have {split}/CLASS/*.jpg and similar, or {split}-*.tar"
            f"{f', or {ANNOTATIONS} and its images' if split == 'val' else ''}; {remedy}"
        )
    return images, classes


def _lines(folder: Folder, name: str) -> list[str]:
    """Return the lines of a text file that are not empty. Raises DataError if it is not UTF-8."""
    try:
        text = folder.read(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{folder.url}/{name} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    return [line for line in text.splitlines() if line.strip()]


def _in_folders(folder: Folder, split: str, numbers: dict[str, int], runtime: Runtime) -> list[ImageFile]:
    """Return the images of a split's folders. Warn about files that are not images."""
    files = folder.files(split, heartbeat=runtime.heartbeat)
    if ANNOTATIONS in files:
        return _annotated(folder, files, numbers)
    images = {
        name: facts for name, facts in files.items() if name.lower().endswith(IMAGE_SUFFIXES) and not _is_hidden(name)
    }
    others = [name for name in files if name not in images and not name.lower().endswith(NOTES_SUFFIX)]
    if others and runtime.rank == 0:
        warn(
            f"{folder.url}/{split} has {len(others)} files that are hidden or have no image suffix; they are "
            f"skipped; the first: {others[0]!r}; image suffixes are {' '.join(IMAGE_SUFFIXES)}"
        )
    return [_in_class(folder, name, facts, numbers) for name, facts in images.items()]


def _is_hidden(name: str) -> bool:
    """Return True if the file or a folder above it is hidden, like files of editors and file managers."""
    return any(part.startswith(".") for part in name.split("/"))


def _in_class(folder: Folder, name: str, facts: FileFacts, numbers: dict[str, int]) -> ImageFile:
    """Return the file as an image of its folder's class."""
    split, class_name, *rest = name.split("/")
    if not rest:
        raise DataError(f"{folder.url}/{name} is not in a class folder: move it into {split}/CLASS/ or remove it")
    if class_name not in numbers:
        where = f"{folder.url}/{split}/{class_name}"
        raise DataError(f"{where}: class {class_name!r} is not in the training set; remove it, or add it to train/")
    return _whole(folder, name, facts, numbers[class_name])


def _annotated(folder: Folder, files: dict[str, FileFacts], numbers: dict[str, int]) -> list[ImageFile]:
    images = []
    for line in _lines(folder, ANNOTATIONS):
        name, _, rest = line.partition("\t")
        class_name, file = rest.partition("\t")[0], f"val/images/{name}"
        where = f"{folder.url}/{ANNOTATIONS}"
        if class_name not in numbers:
            raise DataError(f"{where}: class {class_name!r} is not in the training set; remove the line")
        if file not in files:
            raise DataError(f"{where}: file {file} does not exist; add it or remove the line")
        images.append(_whole(folder, file, files[file], numbers[class_name]))
    return images


def _whole(folder: Folder, file: str, facts: FileFacts, label: int) -> ImageFile:
    return ImageFile(file, 0, facts.size, facts.version, f"{folder.url}/{file}", label)


def _in_shards(folder: Folder, split: str, shards: list[str], runtime: Runtime) -> list[ImageFile]:
    """Return the images of all shards. The ranks divide a bucket's shards, because finding images reads all bytes."""
    by_shard = {}
    for shard in shards if folder.is_local else shards[runtime.rank :: runtime.world]:
        by_shard[shard] = _in_shard(folder, shard, should_warn=runtime.rank == 0 or not folder.is_local)
        runtime.heartbeat()
    if not folder.is_local:
        wait_for_ranks(runtime, f"shards/{split}")
        by_shard = {shard: images for each in runtime.gather(by_shard) for shard, images in each.items()}
    return [image for shard in shards for image in by_shard[shard]]


def _in_shard(folder: Folder, shard: str, *, should_warn: bool) -> list[ImageFile]:
    """Return the images of a shard. Raises DataError for a broken shard or an image without a class.

    If `should_warn` is True, warn of skipped images.
    """
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, tuple[str, bytes]] = {}
    skipped: list[str] = []
    where = f"{folder.url}/{shard}"
    version = folder.facts(shard).version
    try:
        with folder.open(shard) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                place, _, last = member.name.rpartition("/")
                stem, _, suffix = last.partition(".")
                key, suffix = f"{place}/{stem}", "." + suffix.lower()
                if suffix in IMAGE_SUFFIXES:
                    images[key] = member
                elif content := archive.extractfile(member) if suffix in (".cls", ".json") else None:
                    # A .cls takes precedence: the .json may hold anything.
                    if suffix == ".cls" or key not in labels:
                        labels[key] = (f"{where}:{member.name}", content.read())
                elif suffix.endswith(IMAGE_SUFFIXES):
                    skipped.append(member.name)
            _check_end(file, archive.offset)
    except (tarfile.TarError, ValueError) as error:
        raise DataError(f"{where} is broken ({error}): create it again") from None
    if skipped and should_warn:
        warn(
            f"{where}: number of skipped images: {len(skipped)}, the first: {skipped[0]!r}; in WebDataset a suffix "
            "begins at a name's first dot; remove the other dots from the names of images"
        )
    unknown = sorted(images.keys() - labels.keys())
    if unknown:
        raise DataError(f"{where}: {images[unknown[0]].name} has no .cls or .json; create the shard again")
    return [
        ImageFile(shard, image.offset_data, image.size, version, f"{where}:{image.name}", _parse_label(*labels[key]))
        for key, image in images.items()
    ]


def _check_end(file: IO[bytes], end: int) -> None:
    """Raise ValueError if a tar is truncated, because tarfile would silently return fewer members."""
    file.seek(end)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise ValueError(f"it is truncated or damaged at byte {end}")


def _parse_label(where: str, content: bytes) -> int:
    """Return the class number in a .cls or .json file. Raises DataError if there is none."""
    try:
        label = json.loads(content)["label"] if where.lower().endswith(".json") else int(content)
    except (ValueError, TypeError, LookupError):
        label = None
    if type(label) is not int or not 0 <= label < MAX_CLASSES:
        raise DataError(
            f"{where} has no class ({content[:40]!r}); must be a number from 0 to {MAX_CLASSES - 1}, in a .json as "
            '{"label": 0}: create the shard again'
        )
    return label
