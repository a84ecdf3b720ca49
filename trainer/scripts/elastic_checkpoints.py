"""Lightning's checkpoints in a run's folder: a file is whole or not there; the newest whole one is found."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from trainer.storage import Folder

ENDING = ".ckpt"


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints as every other file of a run is written.

    Lightning's own way fills a file in the temporary folder and moves it: to another disk that is a copy, of which a
    host that is killed leaves half.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint; raises StorageError."""
        assert storage_options is None
        content = io.BytesIO()
        torch.save(checkpoint, content)
        self._folder.write(PurePosixPath(path).name, content.getvalue())


def place_of(folder: Folder) -> str:
    """A folder as Lightning wants it: a path on a disk, else a URL."""
    return folder.path if folder.is_local else folder.url


def newest_checkpoint(folder: Folder, skipped: Callable[[str, str], None]) -> str | None:
    """The path or URL of the newest checkpoint that is whole; others are told to `skipped` with the reason."""
    for name in sorted((each for each in folder.names() if each.endswith(ENDING)), reverse=True):
        broken = _broken(folder, name)
        if not broken:
            return f"{place_of(folder)}/{name}"
        skipped(name, broken)
    return None


def _broken(folder: Folder, name: str) -> str:
    """Why a file is no whole checkpoint: torch's files are zip archives, with a checksum of each part."""
    try:
        with folder.open(name) as file, zipfile.ZipFile(file) as archive:
            part = archive.testzip()
    except (zipfile.BadZipFile, EOFError) as error:
        return str(error) or "it ends too soon"
    return f"{part} does not match its checksum" if part else ""
