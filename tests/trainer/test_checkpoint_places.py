"""Files, folders, pipes and links at the paths of checkpoints and their files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.trainer.saving import newest, save, tensor_file
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.tensor_files import MANIFEST
from trainer.exit_codes import StorageError
from trainer.runtime import Runtime
from trainer.storage import Folder


def test_file_at_an_old_checkpoint_path_is_deleted(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=1)
    save(checkpoints, 2)
    (tmp_path / "step-000000001").write_text("no checkpoint")
    save(checkpoints, 3)
    assert checkpoints.folder.names() == ["step-000000003"]


def fold(path: Path) -> None:
    """Replace a file by a folder that is not empty."""
    path.unlink()
    path.mkdir()
    (path / "other").touch()


def remove(folder: Path) -> None:
    """Remove a checkpoint."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def put_file(place: Path) -> None:
    """Put a file at a checkpoint's path."""
    remove(place)
    place.write_text("no checkpoint")


def put_link(place: Path, target: str) -> None:
    """Put a link at a checkpoint's path."""
    remove(place)
    place.symlink_to(target)


def pipe(path: Path) -> None:
    """Replace a file by a pipe without a writer."""
    path.unlink()
    os.mkfifo(path)


def put_pipe(place: Path) -> None:
    """Put a pipe at a checkpoint's path."""
    remove(place)
    os.mkfifo(place)


IN_THE_WAY: dict[str, Callable[[Path], None]] = {
    "a folder for tensors": lambda place: fold(tensor_file(place)),
    "a folder for a manifest": lambda place: fold(place / MANIFEST),
    "a pipe for tensors": lambda place: pipe(tensor_file(place)),
    "a pipe for a manifest": lambda place: pipe(place / MANIFEST),
    "a pipe for the folder": put_pipe,
    "a file for the folder": put_file,
    "a link to nothing": lambda place: put_link(place, "nothing"),
    "a link to itself": lambda place: put_link(place, place.name),
}


@pytest.mark.parametrize("put", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_skipped_path_is_replaced_when_its_step_is_saved(
    put: Callable[[Path], None], tmp_path: Path, runtime: Runtime
) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    save(checkpoints, 1, 2)
    put(tmp_path / "step-000000002")
    found, (skipped,) = newest(checkpoints)
    assert found
    assert found.facts["step"] == 1
    assert skipped[0] == "step-000000002"
    save(checkpoints, 2)
    place = tmp_path / "step-000000002"
    assert sorted(place.iterdir()) == [place / MANIFEST, tensor_file(place)]
    again, nothing = newest(checkpoints)
    assert again
    assert (again.facts["step"], nothing) == (2, [])


@pytest.mark.parametrize("step", [1, 2])
def test_link_target_of_a_checkpoint_path_is_left_alone(step: int, tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}/run"), runtime, keep=1)
    save(checkpoints, 1)
    place, elsewhere = tmp_path / "run" / "step-000000001", tmp_path / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    # A run without knowledge of it would write its own step into the same folder.
    save(Checkpoints(Folder(f"file://{tmp_path}/run"), runtime, keep=1), step)
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before
    assert checkpoints.folder.names() == [f"step-{step:09d}"]
    assert not (tmp_path / "run" / f"step-{step:09d}").is_symlink()


@pytest.mark.parametrize("ending", [MANIFEST, ".tensors"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_unreadable_checkpoint_is_skipped_and_failing_storage_raises(
    number: int, ending: str, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    save(checkpoints, 1, 2)
    read = LocalFileSystem.cat_file

    def fail(self: LocalFileSystem, path: str, **more: Any) -> bytes:
        if "/step-000000002/" in path and path.endswith(ending):
            raise OSError(number, os.strerror(number))
        return bytes(read(self, path, **more))

    monkeypatch.setattr(LocalFileSystem, "cat_file", fail)
    if number == errno.EIO:
        with pytest.raises(
            StorageError, match=rf"{ending} cannot be read: Input/output error; no older checkpoint is used"
        ):
            newest(checkpoints)
        return
    found, skipped = newest(checkpoints)
    assert found
    assert found.facts["step"] == 1
    assert [why.partition(f"{ending} ")[2] for _, why in skipped] == ["cannot be read: Permission denied"]


def test_tensor_file_on_another_disk_prevents_the_seal(tmp_path: Path, runtime: Runtime) -> None:
    place = tmp_path / "step-000000001"

    def lose() -> None:
        # Files that another host wrote to its own disk are missing as well.
        for file in place.glob("*.tensors"):
            file.unlink()

    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3, permit=lose)
    with pytest.raises(StorageError, match=r"tensors cannot be read: No such file .* a bucket that all hosts share"):
        save(checkpoints, 1)
    assert not (place / MANIFEST).exists()
