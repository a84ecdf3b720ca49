"""Checkpoints: one self-checking file a step; the newest whole one is found by looking, with no pointer to it."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from typing import Any

import torch

from trainer.exit_codes import DataError
from trainer.storage import Folder

FORMAT = 1
"""Version of the file format, raised when an older trainer could not read the file."""
NAME = re.compile(r"step-(\d{9})\.checkpoint")
State = dict[str, Any]
"""Tensors, numbers and text, nested in dicts and lists: what torch.load reads with weights_only."""


class Checkpoints:
    """The checkpoints of one run.

    A file is a line of JSON (format, step, length and SHA-256 of what follows) and the state as torch.save writes it.
    """

    def __init__(self, folder: Folder, *, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, step: int, state: State) -> str:
        """Write the checkpoint of a step and delete the oldest ones; returns its URL."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        name = f"step-{step:09d}.checkpoint"
        self.folder.write(name, pack(step, buffer.getvalue()))
        for old in self._newest_first()[self.keep :]:
            self.folder.delete(old)
        return f"{self.folder.url}/{name}"

    def newest(self, *, signature: str, skipped: Callable[[str, str], None]) -> bytes | None:
        """What torch.save wrote of the newest whole checkpoint, None where there never was one.

        One that is broken or has another signature is reported to `skipped`, with its name and what is wrong with it.
        Raises DataError where all are so: starting again from nothing would hide the loss.
        """
        names = self._newest_first()
        for name in names:
            try:
                content = unpack(self.folder.read(name))
                _check_signature(content, signature)
            except ValueError as error:
                skipped(name, str(error))
                continue
            return content
        if names:
            raise DataError(
                f"{self.folder.url}: none of {len(names)} checkpoints can be used; move them away to start anew"
            )
        return None

    def _newest_first(self) -> list[str]:
        return sorted((name for name in self.folder.names() if NAME.fullmatch(name)), reverse=True)


def pack(step: int, content: bytes) -> bytes:
    """The file of a checkpoint."""
    head = {"format": FORMAT, "step": step, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return json.dumps(head).encode("ascii") + b"\n" + content


def unpack(file: bytes) -> bytes:
    """What torch.save wrote; raises ValueError saying what is wrong with the file."""
    line, _, content = file.partition(b"\n")
    try:
        head = json.loads(line)
        version, length, digest = head["format"], head["bytes"], head["sha256"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("it has no header" if file else "it is empty") from None
    if version != FORMAT:
        raise ValueError(f"its format is {version}, not {FORMAT}")
    if len(content) != length:
        raise ValueError(f"it has {len(content)} of {length} bytes")
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError("its checksum is wrong")
    return content


def load_state(content: bytes) -> State:
    """The state that torch.save wrote, on the CPU."""
    state: State = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def _check_signature(content: bytes, signature: str) -> None:
    try:
        found = load_state(content)["signature"]
    except Exception as error:  # what is no pickle of ours can raise anything
        raise ValueError(f"it cannot be read ({type(error).__name__})") from None
    if found != signature:
        raise ValueError(f"it is of {found}, not {signature}")
