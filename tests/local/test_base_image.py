"""The build of the base image leaves no new folder on the machine."""

from __future__ import annotations

from pathlib import Path

from infra.local.trainer_image import _no_new_folder


def test_no_new_folder_removes_created_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    with _no_new_folder(folder):
        folder.mkdir()
    assert not folder.exists()


def test_no_new_folder_keeps_existing_and_used_folders(tmp_path: Path) -> None:
    with _no_new_folder(tmp_path):
        pass
    used = tmp_path / "mount"
    with _no_new_folder(used):
        used.mkdir()
        (used / "utab").touch()
    assert tmp_path.exists()
    assert (used / "utab").exists()
