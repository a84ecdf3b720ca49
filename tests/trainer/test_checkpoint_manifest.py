"""A manifest with a valid checksum and invalid values is rejected, and the previous checkpoint is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.state import RunState
from trainer.checkpoints.tensor_files import MANIFEST, seal, unseal
from trainer.data.sampler import EpochSampler
from trainer.runtime import Runtime
from trainer.storage import Folder

WEIGHT = "model.0.weight"
Manifest = dict[str, Any]


def state_after(steps: int) -> RunState:
    """Return a small model after some steps."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    state = RunState(
        signature="small/adamw",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        sampler=EpochSampler(100, rank=0, world=1, batch_size=4, seed=0),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
    )
    for _ in range(steps):
        model(torch.randn(5, 3)).sum().backward()
        state.optimizer.step()
        state.step += 1
    return state


def tensor(name: str, **changes: object) -> Callable[[Manifest], None]:
    """Change fields of a tensor."""
    return lambda manifest: manifest["tensors"][name].update(changes)


WRONG: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "whole weights": (tensor(WEIGHT, dtype="int32"), "0.weight has another shape or type, or is missing"),
    "another model": (lambda found: found["facts"].update(signature="large/sgd"), "it belongs to large/sgd"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_manifest_with_invalid_value_is_skipped_and_reported(kind: str, tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2)
    for steps in (1, 2):
        checkpoints.save(steps, state_after(steps).capture(runtime))
        checkpoints.wait()
    say, reason = WRONG[kind]
    file = tmp_path / "step-000000002" / MANIFEST
    manifest = unseal(file.read_bytes())
    say(manifest)
    file.write_bytes(seal(manifest))
    skipped: list[str] = []
    state = state_after(0)
    found = checkpoints.load_newest(
        check_compatible=state.check_compatible, skipped=lambda _name, why: skipped.append(why)
    )
    assert found
    state.restore(found, runtime, seed=0)
    assert state.step == 1
    assert len(skipped) == 1
    assert reason in skipped[0]
