"""Save and load checkpoints of a small state, and save in a process until it is killed."""

from __future__ import annotations

import itertools
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_loader import load

from trainer.checkpoints.checkpoint import Checkpoints, SavedState, Tensors
from trainer.checkpoints.state import RunState
from trainer.checkpoints.tensor_files import MANIFEST, TensorFilesReader, decode_manifest, destination
from trainer.config import parse
from trainer.data.sampler import EpochSampler
from trainer.runtime import start_runtime
from trainer.storage import Folder


def state_at(step: int) -> SavedState:
    """Return a small state whose tensors contain the step's number."""
    return SavedState(
        tensors={"weights": torch.full((50, 20), float(step)), "steps": torch.tensor(step), "empty": torch.empty(0, 3)},
        facts={"signature": "cnn/adamw", "step": step},
    )


def small_state() -> RunState:
    """Return the state of a run with a small model that has batch statistics."""
    model = torch.nn.BatchNorm1d(3)
    return RunState(
        signature="small/adamw",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        sampler=EpochSampler(100, rank=0, world=1, batch_size=4, seed=0),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
    )


def read_checkpoint(folder: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the facts of the checkpoint in a folder on a disk."""
    manifest = decode_manifest((folder / MANIFEST).read_bytes())
    tensors = destination(manifest)
    load(tensors, storage_reader=TensorFilesReader(Folder(f"file://{folder}"), manifest), no_dist=True)
    return tensors, manifest["facts"]


def tensor_file(folder: Path) -> Path:
    """Return the only tensor file of the checkpoint in a folder on a disk."""
    (found,) = folder.glob("rank-0-*.tensors")
    return found


def save_steps(checkpoints: Checkpoints, *steps: int) -> None:
    """Save the small states of these steps, one after the other."""
    for step in steps:
        checkpoints.save(step, state_at(step))
    checkpoints.wait()


def load_newest(checkpoints: Checkpoints) -> tuple[SavedState, list[tuple[str, str]]]:
    """Return the newest usable checkpoint, and the name and reason of each skipped one."""
    found, skipped = load_newest_or_none(checkpoints)
    assert found
    return found, skipped


def load_newest_or_none(checkpoints: Checkpoints) -> tuple[SavedState | None, list[tuple[str, str]]]:
    """Return the newest usable checkpoint or None, and the name and reason of each skipped one."""
    skipped: list[tuple[str, str]] = []
    found = checkpoints.load_newest(
        check_compatible=_check_signature, skipped=lambda name, reason: skipped.append((name, reason))
    )
    return found, skipped


def _check_signature(found: SavedState) -> None:
    if found.facts["signature"] != "cnn/adamw":
        raise ValueError(f"it belongs to {found.facts['signature']}, not cnn/adamw")


def save_until_killed(url: str, first: int, completed: Connection) -> None:
    """Save steps from `first` on. Send each step's number when its checkpoint is complete."""
    checkpoints = Checkpoints(Folder(url), start_runtime(parse(["digits", "--device=cpu"])), keep=2)
    for step in itertools.count(first):
        tensors = {f"weights-{part}": torch.full((250_000,), float(step)) for part in range(4)}
        checkpoints.save(step, SavedState(tensors=tensors, facts={"signature": "cnn/adamw", "step": step}))
        checkpoints.wait()
        completed.send(step)
