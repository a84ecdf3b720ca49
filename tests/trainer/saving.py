"""Checkpoints of a small state: saved, found again, and saved without end by a process that someone kills."""

from __future__ import annotations

import itertools
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from trainer.checkpoints.checkpoint import Checkpoints, Saved
from trainer.config import parse
from trainer.runtime import start_runtime
from trainer.storage import Folder


def saved(step: int) -> Saved:
    """The state after a step."""
    return Saved(
        tensors={"weights": torch.full((50, 20), float(step)), "steps": torch.tensor(step), "none": torch.empty(0, 3)},
        facts={"signature": "cnn/adamw", "step": step},
    )


def tensor_file(folder: Path) -> Path:
    """Return the only tensor file of a checkpoint on a disk."""
    (found,) = folder.glob("rank-0-*.tensors")
    return found


def save(checkpoints: Checkpoints, *steps: int) -> None:
    """Save the state after each of the steps."""
    for step in steps:
        checkpoints.save(step, saved(step))
    checkpoints.wait()


def newest(checkpoints: Checkpoints) -> tuple[Saved | None, list[tuple[str, str]]]:
    """The newest checkpoint that is good, and which were skipped for what."""
    skipped: list[tuple[str, str]] = []
    found = checkpoints.newest(fits=_fits, skipped=lambda name, reason: skipped.append((name, reason)))
    return found, skipped


def _fits(found: Saved) -> None:
    if found.facts["signature"] != "cnn/adamw":
        raise ValueError(f"it is of {found.facts['signature']}, not cnn/adamw")


def save_for_ever(url: str, first: int, saved: Connection) -> None:
    """Save from step `first` on; says each step that is whole."""
    checkpoints = Checkpoints(Folder(url), start_runtime(parse(["digits", "--device=cpu"])), keep=2)
    for step in itertools.count(first):
        tensors = {f"weights-{part}": torch.full((250_000,), float(step)) for part in range(4)}
        checkpoints.save(step, Saved(tensors=tensors, facts={"signature": "cnn/adamw", "step": step}))
        checkpoints.wait()
        saved.send(step)
