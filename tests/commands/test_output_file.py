"""Files that commands write to a given path: a failed write leaves no partial file, and keeps an older file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from commands.interrupts import CommandError
from commands.output_file import output_file


def write(target: Path, text: str, problem: int = 0) -> None:
    """Write a file. If `problem` is an error number, fail with it after the first half."""
    with output_file(target) as written:
        written.write_text(text[: len(text) // 2], encoding="utf-8")
        if problem:
            raise OSError(problem, os.strerror(problem))
        written.write_text(text, encoding="utf-8")


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"page.html: cannot be written \(No space left on device\); free some disk"):
        write(tmp_path / "page.html", "new text", errno.ENOSPC)
    assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_the_older_file(tmp_path: Path) -> None:
    write(tmp_path / "page.html", "older")
    with pytest.raises(CommandError, match=r"Input/output error.*; name another file with `--output`"):
        write(tmp_path / "page.html", "new text", errno.EIO)
    assert [(file.name, file.read_text(encoding="utf-8")) for file in tmp_path.iterdir()] == [("page.html", "older")]


def test_write_to_a_link_changes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("page.html")
    write(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "text"


def test_full_device_is_an_error_with_a_remedy() -> None:
    with pytest.raises(CommandError, match=r"/dev/full: cannot be written \(No space left on device\); free some disk"):
        write(Path("/dev/full"), "text")
    assert Path("/dev/full").is_char_device()


def test_missing_folder_is_an_error_unless_output_file_should_make_the_folder(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"page.html: cannot be written \(No such file or directory\); name another"):
        write(tmp_path / "typo" / "page.html", "text")
    assert not (tmp_path / "typo").exists()
    with output_file(tmp_path / "job" / "page.html", should_make_folder=True) as written:
        written.write_text("text", encoding="utf-8")
    assert (tmp_path / "job" / "page.html").read_text(encoding="utf-8") == "text"
