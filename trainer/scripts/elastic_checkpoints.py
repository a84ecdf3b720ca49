"""Lightning's checkpoints in a run's folder, each complete or absent."""

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


class AtomicFiles(TorchCheckpointIO):
    """Write checkpoints atomically, like all other files of a run.

    Lightning itself writes a temporary file and moves it. On another disk the move is a copy, and a killed host leaves
    half of it.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint. Raises StorageError."""
        assert storage_options is None
        content = io.BytesIO()
        torch.save(checkpoint, content)
        self._folder.write(PurePosixPath(path).name, content.getvalue())


def lightning_path(folder: Folder) -> str:
    """Return a folder in Lightning's form: a path on a disk, else a URL."""
    return folder.path if folder.is_local else folder.url


def newest_checkpoint(folder: Folder, skipped: Callable[[str, str], None]) -> str | None:
    """Return the path or URL of the newest complete checkpoint. `skipped` receives each broken one with the reason."""
    for name in sorted((each for each in folder.names() if each.endswith(ENDING)), reverse=True):
        defect = _defect(folder, name)
        if not defect:
            return f"{lightning_path(folder)}/{name}"
        skipped(name, defect)
    return None


def _defect(folder: Folder, name: str) -> str:
    """Return the defect of a checkpoint, or an empty string. torch's files are zip archives with checksums."""
    try:
        with folder.open(name) as file, zipfile.ZipFile(file) as archive:
            part = archive.testzip()
    except (zipfile.BadZipFile, EOFError) as error:
        return str(error) or "it is truncated"
    return f"{part} does not match its checksum" if part else ""
