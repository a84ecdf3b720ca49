"""Histories of checkpoints: saved, damaged, resumed, saved again, taken over; no whole checkpoint is lost."""

from __future__ import annotations

from pathlib import Path

from tests.trainer.saving import newest, save, tensor_file
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.tensor_files import MANIFEST
from trainer.runtime import Runtime
from trainer.storage import Folder


def truncate(path: Path) -> None:
    """Remove the last byte of a file."""
    path.write_bytes(path.read_bytes()[:-1])


def test_retention_step_broken_at_resume_and_saved_again_is_kept(tmp_path: Path, runtime: Runtime) -> None:
    save(Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3), 1, 2, 3)
    truncate(tensor_file(tmp_path / "step-000000003"))
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    newest(checkpoints)
    save(checkpoints, 3, 4)
    assert checkpoints.folder.names() == [f"step-{step:09d}" for step in (2, 3, 4)]
    assert newest(Checkpoints(checkpoints.folder, runtime, keep=3))[1] == []


def test_retention_checkpoint_damaged_after_resume_is_not_counted(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2)
    save(checkpoints, 1, 2)
    truncate(tensor_file(tmp_path / "step-000000002"))
    save(checkpoints, 3)
    assert checkpoints.folder.names() == ["step-000000001", "step-000000003"]


def test_retention_checkpoint_with_a_damaged_manifest_is_not_counted(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2)
    save(checkpoints, 1, 2)
    truncate(tmp_path / "step-000000002" / MANIFEST)
    save(checkpoints, 3)
    assert checkpoints.folder.names() == ["step-000000001", "step-000000003"]
