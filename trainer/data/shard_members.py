"""Parse the members of a WebDataset shard and check that the shard is complete."""

from __future__ import annotations

import json
import tarfile
from typing import IO, TypeVar

from trainer.exit_codes import DataError
from trainer.setting_rules import MAX_CLASSES

MAX_LABEL_BYTES = 2**20
"""Most bytes to read of a .cls or .json file."""
Part = TypeVar("Part")


def add_part(found: dict[str, Part], key: str, value: Part, where: str) -> None:
    """Add a part of a sample. Raises DataError if the sample already has that part."""
    if key in found:
        raise DataError(f"{where}: sample {key.strip('/')!r} has two images or two classes; create the shard again")
    found[key] = value


def check_end(file: IO[bytes], end: int) -> None:
    """Raise ValueError if a tar is truncated or has data after its end. A reader would silently see fewer members."""
    file.seek(end)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise ValueError(f"it is truncated or damaged at byte {end}")
    while block := file.read(tarfile.RECORDSIZE):
        if any(block):
            raise ValueError(f"it has data after its end at byte {end}, like two shards in one file")


def parse_label(where: str, content: bytes) -> int:
    """Return the class number in a .cls or .json file. Raises DataError if there is none."""
    try:
        found = json.loads(content)["label"] if where.lower().endswith(".json") else content
        label = int(found)
        if 0 <= label < MAX_CLASSES and not isinstance(found, bool | float):
            return label
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        pass
    raise DataError(
        f"{where} has no class ({content[:40]!r}); allowed is a number from 0 to {MAX_CLASSES - 1}, in a .json as "
        '{"label": 0}: create the shard again'
    )
