"""Where images lie, on a disk or in a bucket: ImageNet's and Tiny-ImageNet's folders, and WebDataset's shards."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from trainer.data.shard_members import LONGEST_LABEL, check_end, keep_only, label_in
from trainer.exit_codes import DataError, StorageError
from trainer.storage import FileFacts, Folder, MissingFileError

# fmt: off
IMAGE_ENDINGS = (
    ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)
# fmt: on
"""Endings of image files, in small letters."""
NOTES = ".txt"
"""Ending of what lies beside images without being meant as one, such as Tiny-ImageNet's boxes."""
ANNOTATIONS = "val/val_annotations.txt"
"""Tiny-ImageNet's list of its test images' classes: file name, class, and a box, separated by tabs."""
CLASS_NAMES = "classes.txt"
"""Names of the classes of shards, a line each; it need not be there."""


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """Where one image's bytes are in a data set's folder."""

    file: str
    """A file: the image itself, or a shard."""
    start: int
    """Where in the file the image begins, in bytes."""
    size: int
    """How many bytes the image has."""
    version: str
    """What is another one once the file was written again: when that was, or a bucket's name for its content."""
    name: str
    """What to call it when it is broken."""
    label: int
    """Number of its class."""

    def read(self, folder: Folder) -> bytes:
        """The image as it was encoded; raises StorageError, and ValueError for a pipe and the like."""
        _refuse_pipe(folder, self.file)
        return folder.read_part(self.file, self.start, self.size)


@dataclass(frozen=True, kw_only=True)
class Place:
    """This rank among those that read the same data set."""

    builds: bool = True
    """Whether this rank makes the cache of decoded images; one of each host does."""
    alive: Callable[[], None] = lambda: None
    """Called while others are waited for."""
    rank: int = 0
    """Number of this rank."""
    world: int = 1
    """How many ranks there are."""
    gather: Callable[[Any], list[Any]] = lambda mine: [mine]
    """Gives every rank what each of them has, by rank; all must call it."""


def find_images(folder: Folder, split: str, place: Place, *, trained: int = 0) -> tuple[list[ImageFile], int]:
    """The images of `train` or `val` in a fixed order, and the number of classes; `trained`: of the training set.

    Understands `SPLIT/CLASS/*.JPEG` (ImageNet), `SPLIT/CLASS/images/*.JPEG` with `val/val_annotations.txt`
    (Tiny-ImageNet) and `SPLIT-*.tar` with `KEY.jpg` beside `KEY.cls` or `KEY.json` (WebDataset,
    https://github.com/webdataset/webdataset#the-webdataset-format). Raises DataError naming the folder.
    """
    try:
        found = folder.names()
        if shards := [name for name in found if fnmatch(name, f"{split}-*.tar")]:
            images = _in_shards(folder, shards, place)
            names = _lines(folder, CLASS_NAMES) if CLASS_NAMES in found else []
            classes = trained or len(names) or 1 + max((image.label for image in images), default=0)
            _check_labels(images, classes, "of the training set" if trained else f"named in {CLASS_NAMES}")
        else:
            numbers = {name: number for number, name in enumerate(_classes(folder))}
            images, classes = _in_folders(folder, split, numbers, place), len(numbers)
    except MissingFileError:
        images = []
    if not images:
        do = "set --data-dir to a folder with them" if split == "train" else "add them"
        raise DataError(
            f"{folder.url} has no images of {split}: allowed are {split}/CLASS/*.jpg and the like, or {split}-*.tar"
            f"{f', or {ANNOTATIONS} and its images' if split == 'val' else ''}; {do}"
        )
    return images, classes


def _check_labels(images: list[ImageFile], classes: int, which: str) -> None:
    for image in images:
        if image.label >= classes:
            raise DataError(
                f"{image.name} has class {image.label}; allowed are 0 to {classes - 1}, the classes {which}: make the "
                "shard again, or give the classes that are missing"
            )


def _lines(folder: Folder, name: str) -> list[str]:
    """The lines of a text that are not empty; raises DataError naming it."""
    try:
        text = folder.read(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{folder.url}/{name} is no text in UTF-8 (byte {error.start}): save it again as UTF-8"
        ) from None
    return [line for line in text.splitlines() if line.strip()]


@contextmanager
def _listing(folder: Folder, split: str) -> Iterator[None]:
    """Turn what a disk raises into our own errors."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"{folder.url}/{split} is no folder") from None
    except OSError as error:
        raise StorageError(f"{folder.url}/{split} cannot be listed: {error.strerror or error}") from None


def _classes(folder: Folder) -> list[str]:
    """Names of the training set's classes: of its folders, and on a disk of links to folders too."""
    if not folder.is_local:
        found = folder.child("train").folders()
    else:
        with _listing(folder, "train"):
            found = sorted(path.name for path in Path(folder.path, "train").iterdir() if path.is_dir())
    return [name for name in found if not _is_hidden(name)]


def _files(folder: Folder, split: str) -> dict[str, FileFacts]:
    """A split's files by name, in order; on a disk also those behind links to folders."""
    if not folder.is_local:
        return folder.files(split)
    with _listing(folder, split):
        return dict(sorted(_below(folder.path, split, frozenset())))


def _below(root: str, name: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, FileFacts]]:
    """Files below a folder; a link to a folder that it lies in itself leads nowhere new."""
    with os.scandir(f"{root}/{name}") as entries:
        place = os.stat(f"{root}/{name}")  # noqa: PTH116  # a set has many files: strings are faster than paths
        here = above | {(place.st_dev, place.st_ino)}
        for entry in entries:
            path = f"{name}/{entry.name}"
            try:
                facts = entry.stat()
            except OSError:  # a link to nothing: a broken image, once it is read
                yield path, FileFacts(size=0, version="")
                continue
            if not S_ISDIR(facts.st_mode):
                yield path, FileFacts(size=facts.st_size, version=str(facts.st_mtime_ns))
            elif (facts.st_dev, facts.st_ino) not in here:
                yield from _below(root, path, here)


def _in_folders(folder: Folder, split: str, numbers: dict[str, int], place: Place) -> list[ImageFile]:
    """The images of a split's folders; says how many files are no images."""
    files = _files(folder, split)
    if ANNOTATIONS in files:
        return _annotated(folder, files, numbers)
    images = {
        name: facts for name, facts in files.items() if name.lower().endswith(IMAGE_ENDINGS) and not _is_hidden(name)
    }
    others = [name for name in files if name not in images and not name.lower().endswith(NOTES)]
    if others and place.rank == 0:
        _warn(
            f"{folder.url}/{split} has {len(others)} files that are hidden or no images by their endings, and they are "
            f"passed over; the first: {others[0]!r}; taken are {' '.join(IMAGE_ENDINGS)}"
        )
    return [_in_class(folder, name, facts, numbers) for name, facts in images.items()]


def _is_hidden(name: str) -> bool:
    """Whether editors, notebooks and file managers made it: its name begins with a dot, or that of a folder above."""
    return any(part.startswith(".") for part in name.split("/"))


def _warn(words: str) -> None:
    print(f"warning: {words}", file=sys.stderr, flush=True)


def _in_class(folder: Folder, name: str, facts: FileFacts, numbers: dict[str, int]) -> ImageFile:
    """The file as an image of the class that its folder names."""
    split, of_class, *rest = name.split("/")
    if not rest:
        raise DataError(f"{folder.url}/{name} is in no class's folder: move it into {split}/CLASS/ or remove it")
    if of_class not in numbers:
        where = f"{folder.url}/{split}/{of_class}"
        raise DataError(f"{where}: there is no class {of_class!r} in the training set; remove it or add it there")
    return _whole(folder, name, facts, numbers[of_class])


def _annotated(folder: Folder, files: dict[str, FileFacts], numbers: dict[str, int]) -> list[ImageFile]:
    images = []
    for line in _lines(folder, ANNOTATIONS):
        name, _, rest = line.partition("\t")
        of_class, file = rest.partition("\t")[0], f"val/images/{name}"
        where = f"{folder.url}/{ANNOTATIONS}"
        if of_class not in numbers:
            raise DataError(f"{where}: there is no class {of_class!r} in the training set; remove the line")
        if file not in files:
            raise DataError(f"{where}: there is no file {file}; add it or remove the line")
        images.append(_whole(folder, file, files[file], numbers[of_class]))
    return images


def _whole(folder: Folder, file: str, facts: FileFacts, label: int) -> ImageFile:
    name = f"{folder.url}/{file}"
    return ImageFile(file=file, start=0, size=facts.size, version=facts.version, name=name, label=label)


def _in_shards(folder: Folder, shards: list[str], place: Place) -> list[ImageFile]:
    """The images of all shards. To know them a shard is read through: from a bucket, each by one rank only."""
    if folder.is_local:
        return [image for shard in shards for image in _in_shard(folder, shard, says=place.rank == 0)]
    mine = {}
    for shard in shards[place.rank :: place.world]:
        mine[shard] = _in_shard(folder, shard, says=True)
        place.alive()
    everyone = {shard: images for one in place.gather(mine) for shard, images in one.items()}
    return [image for shard in shards for image in everyone[shard]]


def _refuse_pipe(folder: Folder, file: str) -> None:
    """Raise ValueError for what is on a disk and no regular file: to open a pipe takes for ever."""
    path = f"{folder.path}/{file}"
    # Not Path's: they raise where a folder on the way must not be searched.
    if folder.is_local and not os.path.isfile(path) and os.path.exists(path):  # noqa: PTH110, PTH113
        raise ValueError("is no regular file")


def _in_shard(folder: Folder, shard: str, *, says: bool) -> list[ImageFile]:
    """The images of a shard; those without a class are an error. One rank `says` how many are passed over."""
    images: dict[str, tarfile.TarInfo] = {}
    classes, notes = dict[str, tuple[str, bytes]](), dict[str, tuple[str, bytes]]()
    where = f"{folder.url}/{shard}"
    try:
        _refuse_pipe(folder, shard)
    except ValueError as error:
        raise DataError(f"{where} {error}: remove it or make it again") from None
    version = folder.facts(shard).version
    passed: list[str] = []
    try:
        with folder.open(shard) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                place, _, last = member.name.rpartition("/")
                stem, _, ending = last.partition(".")
                key, ending = f"{place}/{stem}", "." + ending.lower()
                if ending in IMAGE_ENDINGS:
                    keep_only(images, key, member, where)
                elif ending in (".cls", ".json"):
                    content = archive.extractfile(member)
                    of_kind = classes if ending == ".cls" else notes
                    said = content.read(LONGEST_LABEL) if content else b""
                    keep_only(of_kind, key, (f"{where}:{member.name}", said), where)
                elif ending.endswith(IMAGE_ENDINGS):
                    passed.append(member.name)
            check_end(file, archive.offset)
    except (tarfile.TarError, ValueError, KeyError) as error:
        raise DataError(f"{where} is broken ({error}): make it again") from None
    if passed and says:
        _warn(
            f"{where} has {len(passed)} images that are passed over, for by WebDataset's rule an ending begins at a "
            f"name's first dot; the first: {passed[0]!r}; name them without other dots where they are meant"
        )
    # Beside a .cls a .json may say anything.
    labels = {**notes, **classes}
    unknown = sorted(images.keys() - labels.keys())
    if unknown:
        raise DataError(f"{where}: {images[unknown[0]].name} has no .cls or .json beside it; make the shard again")
    return [
        ImageFile(
            file=shard,
            start=member.offset_data,
            size=member.size,
            version=version,
            name=f"{where}:{member.name}",
            label=label_in(*labels[key]),
        )
        for key, member in images.items()
    ]
