"""Lock that lets one command of this checkout at a time change a stack. Its error names the holder."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from commands.environment import STATE
from commands.errors import StackBusy

READ_SECONDS = 1.0
"""Seconds that the holder of a lock may take to write its name."""


@contextmanager
def only_command(stack: str, command: str) -> Iterator[None]:
    """Hold the stack's lock in this block. Raises StackBusy, naming the holder, while another command has it.

    The kernel frees the lock when this process ends for any reason. The file stays.
    """
    path = STATE / "locks" / stack
    path.parent.mkdir(parents=True, exist_ok=True)
    # Mode "a" does not empty the file of a holder.
    with path.open("a+", encoding="utf-8") as lock:
        _take(lock, stack)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        lock.truncate(0)
        lock.write(json.dumps({"command": command, "pid": os.getpid(), "since": since}))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def _take(lock: TextIO, stack: str) -> None:
    deadline = time.monotonic() + READ_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(Path(lock.name))
        if holder or time.monotonic() > deadline:
            who = holder or "another command is working on it"
            raise StackBusy(f"stack {stack}: {who}; wait until it ends, or press Ctrl-C there, then run this again")
        time.sleep(0.05)


def _holder(path: Path) -> str:
    """Return a description of the holder; empty until the holder has written it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return f"{found['command']} (pid {found['pid']}) has been working on it since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
