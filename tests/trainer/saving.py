"""A process that saves checkpoint after checkpoint until someone kills it."""

from __future__ import annotations

import itertools
from multiprocessing.connection import Connection

import torch

from trainer.checkpoints.checkpoint import Checkpoints, Saved
from trainer.config import parse
from trainer.runtime import start_runtime
from trainer.storage import Folder


def save_for_ever(url: str, first: int, saved: Connection) -> None:
    """Save from step `first` on; says each step that is whole."""
    checkpoints = Checkpoints(Folder(url), start_runtime(parse(["digits", "--device=cpu"])), keep=2)
    for step in itertools.count(first):
        tensors = {f"weights-{part}": torch.full((250_000,), float(step)) for part in range(4)}
        checkpoints.save(step, Saved(tensors=tensors, facts={"signature": "cnn/adamw", "step": step}))
        checkpoints.wait()
        saved.send(step)
