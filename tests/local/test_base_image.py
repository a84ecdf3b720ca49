"""The build of the base image leaves no new folder on the machine."""

from __future__ import annotations

from pathlib import Path

from infra.local.trainer_image import _remove_new_folder


def test_a_folder_that_a_command_made_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    with _remove_new_folder(folder):
        folder.mkdir()
    assert not folder.exists()


def test_a_folder_that_was_there_or_is_in_use_stays(tmp_path: Path) -> None:
    with _remove_new_folder(tmp_path):
        pass
    used = tmp_path / "mount"
    with _remove_new_folder(used):
        used.mkdir()
        (used / "utab").touch()
    assert tmp_path.exists()
    assert (used / "utab").exists()
