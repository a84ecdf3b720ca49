"""Validation of a folder of text files for recipe `language`, by their names, sizes and first lines."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from settings.problem import Invalid
from workloads.language_model import LANGUAGE
from workloads.spec import JobSpec
from workloads.trainer_flags import FLAGS

SPLITS = ("train", "test")
"""Subfolders that the trainer reads."""
SUFFIXES = FLAGS[LANGUAGE]["data_dir"].suffixes
"""Content of a file -> suffix of its name. Case matters."""
TEXT_KEY = "text"
"""Key of a document in a line of JSON, as in trainer/data/texts.py."""
MAX_FILES = 10_000
"""Maximum number of files to list in a split, so that a large data set does not delay the validation."""
MAX_LINE_BYTES = 2**20
"""Maximum length of a first line. A longer line is not checked."""
_LAYOUT = f"must have train/ and test/, each with {' or '.join(f'*{suffix}' for suffix in SUFFIXES.values())}"
_REMEDY = "add such files, or write another folder (docs/data.md)"


def check_texts(spec: JobSpec, folder: Path) -> None:
    """Raise Invalid if a job with the recipe `language` and a builtin image cannot train on a folder of this machine.

    If this user cannot read a file, stop without an error, because pods run as another user.
    """
    if spec.recipe != LANGUAGE or spec.has_user_image:
        return
    try:
        for split in SPLITS:
            files = list(islice(_files(folder, split), MAX_FILES))
            if len(files) < MAX_FILES:
                _check_split(folder, split, dict(files))
            _check_first_line(folder, [name for name, size in files if size and name.endswith(SUFFIXES["lines"])])
            _check_tokens(spec, [name for name, size in files if size and name.endswith(SUFFIXES["tokens"])])
    except OSError:
        return


def _files(folder: Path, split: str) -> Iterator[tuple[str, int]]:
    """Yield the path below `folder` and the size of each regular file of a split. Follow links as the trainer does."""

    def fail(error: OSError) -> None:
        raise error

    if not (folder / split).is_dir():
        return
    for place, folders, names in os.walk(folder / split, onerror=fail, followlinks=True):
        folders.sort()
        for path in (Path(place) / name for name in sorted(names)):
            with suppress(FileNotFoundError):  # a dangling link
                found = path.stat()
                if stat.S_ISREG(found.st_mode):
                    yield path.relative_to(folder).as_posix(), found.st_size


def _check_split(folder: Path, split: str, sizes: dict[str, int]) -> None:
    """Raise Invalid if a split has no text."""
    texts = [name for name in sizes if name.endswith(tuple(SUFFIXES.values()))]
    if any(sizes[name] for name in texts):
        return
    if not (folder / split).is_dir():
        problem = f"has no folder {split}"
    elif texts:
        problem = f"has only empty text files in {split}, such as {json.dumps(texts[0])}"
    else:
        problem = f"has no text file in {split}"
    raise Invalid("no_text", f"{problem}; {_LAYOUT}; {_REMEDY}")


def _check_first_line(folder: Path, names: list[str]) -> None:
    """Raise Invalid if the first of these files of JSON lines does not begin with a document."""
    for name in names[:1]:
        with (folder / name).open("rb") as file:
            start = file.read(MAX_LINE_BYTES)
            is_whole = not file.read(1)
        lines = start.splitlines() if is_whole else start.splitlines()[:-1]
        number = next((number for number, line in enumerate(lines) if line.strip()), None)
        if number is not None and not _is_document(lines[number]):
            content = f'each line must be {{"{TEXT_KEY}": "..."}}'
            message = f"{json.dumps(name)}, line {number + 1} is not a document; {content}; create the file again"
            raise Invalid("not_document", message)


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line)[TEXT_KEY], str)
    except (ValueError, TypeError, KeyError):
        return False


def _check_tokens(spec: JobSpec, names: list[str]) -> None:
    """Raise Invalid if there are files of tokens, but the trainer must learn a tokenizer from documents."""
    if names and spec.flag("tokenizer") == "bpe":
        problem = f"has rows of tokens, such as {json.dumps(names[0])}, but `tokenizer: bpe` learns from documents"
        remedy = "set `tokenizer` to the tokenizer.json that made these files, or remove them"
        raise Invalid("learnt_tokens", f"{problem}; {remedy}")
