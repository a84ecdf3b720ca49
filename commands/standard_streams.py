"""Standard streams of a command: closed streams, full disks, and text that the output cannot encode."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from commands.interrupts import STDOUT, CommandError, discard_output

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(CommandError):
    """Failed write to standard output."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the output cannot be written: {reason}")


class _Output(io.FileIO):
    """Standard output. Raises OutputError once if it cannot be written, then discards the rest."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write data. Return the number of bytes."""
        if not memoryview(data).nbytes:
            # click writes an empty text to test a stream, and hides the error.
            return 0
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output()
            raise OutputError(error.strerror or str(error)) from error


def prepare() -> None:
    """Replace characters that the output cannot encode, and replace closed streams. Raises OutputError."""
    # A closed stream is None. `open` takes the lowest free descriptor, which is the stream's own.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123  # stays open until the process ends
    is_closed = sys.stdout is None
    if is_closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  # as above
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  # as above
    if is_closed:
        raise OutputError("it is closed")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")
    old = sys.stdout
    # A test replaces standard output with another file.
    if not isinstance(old, io.TextIOWrapper) or not isinstance(getattr(old.buffer, "raw", old.buffer), io.FileIO):
        return
    if old.fileno() != STDOUT or isinstance(getattr(old.buffer, "raw", old.buffer), _Output):
        return
    old.flush()
    raw = _Output(STDOUT, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if isinstance(old.buffer, io.FileIO) else io.BufferedWriter(raw),
        encoding=old.encoding,
        errors="replace",
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )
