"""Checkpoints that are files or links, cannot be read, are on another disk, or belong to another model."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fsspec.implementations.local import LocalFileSystem

from tests.trainer.saving import load_newest, save_steps, small_state
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.tensor_files import MANIFEST, decode_manifest, encode_manifest
from trainer.exit_codes import StorageError
from trainer.runtime import Runtime
from trainer.storage import Folder


def test_file_at_an_old_checkpoint_path_is_deleted(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=1)
    save_steps(checkpoints, 2)
    (tmp_path / "step-000000001").write_text("no checkpoint")
    save_steps(checkpoints, 3)
    assert checkpoints.folder.names() == ["step-000000003"]


def test_link_at_an_old_checkpoint_path_is_deleted_but_not_its_target(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}/run"), runtime, keep=1)
    save_steps(checkpoints, 1)
    link, target = tmp_path / "run" / "step-000000001", tmp_path / "target"
    link.rename(target)
    link.symlink_to(target)
    save_steps(checkpoints, 2)
    assert checkpoints.folder.names() == ["step-000000002"]
    assert (target / MANIFEST).exists()


@pytest.mark.parametrize("ending", [MANIFEST, ".tensors"])
def test_checkpoint_in_failing_storage_raises(
    ending: str, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    save_steps(checkpoints, 1, 2)
    read = LocalFileSystem.cat_file

    def fail(self: LocalFileSystem, path: str, **kwargs: Any) -> bytes:
        if "/step-000000002/" in path and path.endswith(ending):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(read(self, path, **kwargs))

    monkeypatch.setattr(LocalFileSystem, "cat_file", fail)
    with pytest.raises(
        StorageError, match=rf"{ending} cannot be read: Input/output error; no older checkpoint is used"
    ):
        load_newest(checkpoints)


def test_tensor_file_on_another_disk_prevents_the_manifest(tmp_path: Path, runtime: Runtime) -> None:
    folder = tmp_path / "step-000000001"

    class LosingCheckpoints(Checkpoints):
        def verify_lease(self) -> None:
            # A save calls this between its tensors and its manifest. Simulate files on the disk of another host.
            for file in folder.glob("*.tensors"):
                file.unlink()

    checkpoints = LosingCheckpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    with pytest.raises(StorageError, match=r"tensors cannot be read: No such file .* a bucket that all hosts share"):
        save_steps(checkpoints, 1)
    assert not (folder / MANIFEST).exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: found["tensors"]["model.weight"].update(dtype="int32"), "weight has another shape or type"),
        (lambda found: found["facts"].update(signature="large/sgd"), "it belongs to large/sgd, not small/adamw"),
    ],
    ids=["weights", "signature"],
)
def test_checkpoint_of_another_model_is_skipped_and_reported(
    change: Callable[[dict[str, Any]], None], reason: str, tmp_path: Path, runtime: Runtime
) -> None:
    checkpoints, state = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2), small_state()
    for step in (1, 2):
        state.model(torch.randn(5, 3)).sum().backward()
        state.optimizer.step()
        state.step = step
        checkpoints.save(step, state.capture(runtime))
        checkpoints.wait()
    file = tmp_path / "step-000000002" / MANIFEST
    manifest = decode_manifest(file.read_bytes())
    change(manifest)
    file.write_bytes(encode_manifest(manifest))
    skipped: list[str] = []
    state = small_state()
    found = checkpoints.load_newest(
        check_compatible=state.check_compatible, skipped=lambda _name, reported: skipped.append(reported)
    )
    assert found
    state.restore(found, runtime, seed=0)
    assert state.step == 1
    assert len(skipped) == 1
    assert reason in skipped[0]
