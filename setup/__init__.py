"""Set-up of this machine for Trainyard: pinned tools in a cache, and images for the local cluster.

Importing this package installs a hook: Ctrl-C ends the process with one line instead of a traceback, even during later
imports.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType, TracebackType

CLEAR_LINE = "\r\033[K"
SIGNAL_STATUS_OFFSET = 128
"""Number that shells add to the number of a signal, for the exit status of a command that the signal ended."""
GRACE_SECONDS = 3.0
"""Seconds that the programs of set-up have to end after each signal."""
EXIT_SECONDS = 5
"""Seconds that the steps of set-up have to clean up after their programs have ended."""


def install() -> None:
    """Install the hook. On Ctrl-C Python then ends by SIGINT, so that a shell sees status 130.

    The Makefile starts Python with SIGINT blocked. This function unblocks SIGINT. An earlier Ctrl-C then takes effect.
    """
    sys.excepthook = _hook
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_children_on_signals() -> None:
    """On SIGINT, SIGTERM or SIGHUP, end all child processes and then this process, with one line of output."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    def exit_at_once(_number: int, _frame: FrameType | None) -> None:
        _end(descendants(os.getpid()), signal.SIGKILL)
        os._exit(SIGNAL_STATUS_OFFSET + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, exit_at_once)
    if sys.stderr.isatty():
        print(CLEAR_LINE, end="", file=sys.stderr)
    print("set-up stopped: finished steps are kept; the next run continues from there", file=sys.stderr, flush=True)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        _end(descendants(os.getpid()), each)
    # Give steps a few seconds to clean up after their programs, for example after an installation of packages.
    signal.signal(signal.SIGALRM, exit_at_once)
    signal.alarm(EXIT_SECONDS)
    sys.exit(SIGNAL_STATUS_OFFSET + number)


def _end(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and set(pids) & set(descendants(os.getpid())):
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, except zombies."""
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, *_ = file.read_bytes().rpartition(b") ")[2].split()
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(file.parent.name))
    found = list(children.get(pid, []))
    for each in found:
        found += children.get(each, [])
    return found


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


install()
