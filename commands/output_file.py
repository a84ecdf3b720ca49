"""Write a command's output files completely or not at all, and create output folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands.interrupts import FILE_REMEDIES, CommandError


def make_output_folder(folder: Path) -> None:
    """Create a folder that git ignores and that Trainyard does not send with a script. Keep an existing folder."""
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


@contextmanager
def output_file(target: Path, *, should_make_folder: bool = False) -> Iterator[Path]:
    """Yield a path to write to. Rename it to `target` at the end; remove it after an error. Raises CommandError.

    If `target` is a link, a pipe or a device, yield `target` itself. An error can then leave an incomplete file.
    """
    try:
        if should_make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or (target.exists() and not target.is_file()):
            yield target
            return
        written = target.with_name(f".trainyard-{os.getpid()}.partial")
        try:
            yield written
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        remedy = FILE_REMEDIES.get(error.errno or 0, "")
        if not remedy.startswith("free"):
            remedy = "name another file with `--output`"
        raise CommandError(f"{target}: cannot be written ({error.strerror}); {remedy}") from error
