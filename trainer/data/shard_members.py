"""What the members of a WebDataset shard say, and whether the shard is whole."""

from __future__ import annotations

import json
import tarfile
from typing import IO, TypeVar

from trainer.exit_codes import DataError
from trainer.setting_rules import MOST_CLASSES

LONGEST_LABEL = 2**20
"""Bytes of a .cls or .json that are read."""
Of = TypeVar("Of")


def keep_only(found: dict[str, Of], key: str, value: Of, where: str) -> None:
    """Keep what belongs to a sample; raises DataError where it has that already."""
    if key in found:
        raise DataError(f"{where}: sample {key.strip('/')!r} has two images or two classes; make the shard again")
    found[key] = value


def check_end(file: IO[bytes], end: int) -> None:
    """Raise ValueError where a tar is cut off, or goes on after its end: a reader would just see fewer members."""
    file.seek(end)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise ValueError(f"it is cut off or damaged at byte {end}")
    while block := file.read(tarfile.RECORDSIZE):
        if any(block):
            raise ValueError(f"it goes on after its end at byte {end}, as two shards in one file do")


def label_in(where: str, content: bytes) -> int:
    """The number of the class in a .cls or .json; raises DataError naming it."""
    try:
        found = json.loads(content)["label"] if where.lower().endswith(".json") else content
        label = int(found)
        if 0 <= label < MOST_CLASSES and not isinstance(found, bool | float):
            return label
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        pass
    raise DataError(
        f"{where} names no class ({content[:40]!r}); allowed is a number from 0 to {MOST_CLASSES - 1}, in a .json as "
        '{"label": 0}: make the shard again'
    )
