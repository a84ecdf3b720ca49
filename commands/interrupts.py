"""Ctrl-C, SIGTERM and SIGHUP: pass each to the child program once, wait for its end, print a closing sentence.

Pulumi 3.245 handles SIGINT in github.com/pulumi/pulumi, pkg/backend/cancellation_scope.go. The first SIGINT cancels: no
new operation begins, running ones end, Pulumi saves the state and releases the lock. The second one terminates: running
operations are abandoned and stay in the state as pending. Pulumi listens only while the engine runs
(pkg/backend/diy/backend.go, `apply`). Before that, and afterwards while Pulumi saves and unlocks, SIGINT ends the
process and its lock stays. A child is therefore started with SIGINT ignored. Go keeps that until `signal.Notify` and
restores it after `signal.Stop` (https://pkg.go.dev/os/signal). The child gets the signal once it listens.

Plugins have their own process groups (sdk/go/common/util/cmdutil/child_unix.go) and learn of the end from Pulumi.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, TextIO

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GOES_ON = "the stack and its jobs go on"
"""Closing sentence of commands that only read."""
POLL_SECONDS = 0.1
REPORT_SECONDS = 5.0
"""Seconds between two progress lines of a stopping command."""
DRAIN_SECONDS = 5.0
"""Seconds in which output may still arrive after a child has ended. A leftover process may hold the pipe open."""
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class CommandError(RuntimeError):
    """An error that ends a command. The message says what is wrong and what to do."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the command. The message says in which state the stack is and which command continues."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """A child program that has ended."""

    status: int
    """Exit status as in subprocess: negative for the signal that ended it."""
    stdout: str
    stderr: str
    is_stopped: bool
    """True if a signal came while the child ran, even if the child ended before it got the signal."""
    is_abandoned: bool = False
    """True if a second signal ended the child before it had finished its operations."""


_received: list[int] = []
_holds: list[int] = []
"""For each block that holds signals: the number of signals received before it."""
_finishing = 0
_second_raises = False
_closing = ""


def set_closing(text: str) -> None:
    """Set the sentence that the command prints if a signal stops it from here on."""
    global _closing
    _closing = text


def run_command(name: str, command: Callable[[], int]) -> int:
    """Run this process's command and return its exit status.

    A CommandError ends it with its message and 1, a signal with one sentence and 128 + its number.
    """
    set_closing("nothing has changed")
    for number in SIGNALS:
        _handle(number)
    try:
        status = command()
    except CommandError as error:
        say(f"{name}: {error}")
        status = 1
    except KeyboardInterrupt as error:
        _holds.append(len(_received))
        say(f"{name}: stopped; {str(error) or _closing}", new_line=True)
        status = 128 + (_received[0] if _received else signal.SIGINT)
    # The status is known. A signal while Python shuts down would print a traceback.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return status


@contextmanager
def held() -> Iterator[None]:
    """Hold signals in this block and raise KeyboardInterrupt at its end."""
    with _listening():
        _holds.append(len(_received))
        try:
            yield
        except Exception as error:
            if _requests():
                raise KeyboardInterrupt from error
            raise
        finally:
            requests = _requests()
            _holds.pop()
        if requests and not _holds:
            raise KeyboardInterrupt


@contextmanager
def finished_first() -> Iterator[None]:
    """Hold signals and do not pass the first one to children. Use it for blocks that must not stop halfway."""
    global _finishing
    _finishing += 1
    try:
        with held():
            yield
    finally:
        _finishing -= 1


@contextmanager
def finished_unless_repeated(name: str, waits_for: str) -> Iterator[None]:
    """Finish this block after a first signal and report progress. A second signal raises KeyboardInterrupt."""
    global _second_raises
    begun, done = len(_received), threading.Event()
    waiting = _Waiting(name, waits_for, lambda: waits_for)

    def report() -> None:
        while not done.wait(POLL_SECONDS):
            if len(_received) > begun:
                waiting.report()

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        with held():
            _second_raises = True
            yield
    finally:
        _second_raises = False
        done.set()
        thread.join()


class _Waiting:
    """Lines that a command prints while it stops: one at once, then one every few seconds."""

    def __init__(self, name: str, finishes: str, waits_for: Callable[[], str]) -> None:
        self._name, self._finishes, self._waits_for = name, finishes, waits_for
        self._since = self._reported = 0.0

    def report(self) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if not self._since:
            self._since = self._reported = now
            say(f"stopping: {self._name} finishes {self._finishes}; press Ctrl-C again to give up", new_line=True)
        elif now - self._reported >= REPORT_SECONDS:
            self._reported = now
            say(f"stopping: after {now - self._since:.0f} s still waiting for {self._waits_for()}")


def run_child(
    words: Sequence[str],
    *,
    name: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    quiet: bool = False,
    keeps_errors: bool = False,
    stdout: TextIO | None = None,
    ignores_at_start: bool = False,
    waits_for: Callable[[], str] = lambda: "",
) -> Child:
    """Run a program to its end in its own session, so that a terminal's Ctrl-C reaches only this process.

    `quiet` keeps all output for the result and shows none; `keeps_errors` keeps standard error and shows it.
    """
    with _listening():
        _holds.append(len(_received))
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if quiet else stdout,
                stderr=subprocess.PIPE if quiet or keeps_errors else None,
                start_new_session=True,
                # This process has one thread here, and the function only makes two system calls.
                preexec_fn=_ignore_interrupts if ignores_at_start else _follow_parent,
            )
            output, errors = _Pump(process.stdout, None), _Pump(process.stderr, None if quiet else sys.stderr)
            stopping = _Stopping(process, name, waits_for)
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                stopping.step(_requests())
            return Child(
                status=process.returncode,
                stdout=output.text(),
                stderr=errors.text(),
                is_stopped=stopping.is_wanted,
                is_abandoned=stopping.is_abandoned,
            )
        finally:
            _holds.pop()


class _Stopping:
    """Forwarder of signals to one child. It also prints progress."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, waits_for: Callable[[], str]) -> None:
        self._process, self._name = process, name
        self._requests = self._level = 0
        self._waiting = _Waiting(name, "what it has begun", lambda: waits_for() or f"{name} to end")

    def step(self, requests: int) -> None:
        """Act on the number of signals received so far."""
        if not requests:
            return
        if not self._requests or self._process.poll() is None:
            self._waiting.report()
        self._requests = requests
        self._pass_on(self._wanted)

    @property
    def is_wanted(self) -> bool:
        """True if the child was asked to stop."""
        return self._wanted > 0

    @property
    def is_abandoned(self) -> bool:
        """True if the child was asked to end without finishing."""
        return self._level > 1

    @property
    def _wanted(self) -> int:
        return self._requests - 1 if _finishing else self._requests

    def _pass_on(self, wanted: int) -> None:
        """Pass the request on: 1 interrupts, 2 interrupts or terminates at once, 3 kills."""
        pid = self._process.pid
        if self._level == 0 < wanted and (listens(pid) or wanted > 1):
            self._level = 1
            self._send(signal.SIGINT)
        if self._level == 1 < wanted:
            self._level = 2
            self._send(signal.SIGINT if listens(pid) else signal.SIGTERM)
            say(f"giving up: {self._name} ends at once; press Ctrl-C again to kill it", new_line=True)
        if self._level == 2 < wanted:
            self._level = 3
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


class _Pump:
    """Reader of a pipe in a thread. It keeps the text and shows it."""

    def __init__(self, pipe: IO[bytes] | None, shown: TextIO | None) -> None:
        self._pipe, self._shown = pipe, shown
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        if pipe:
            self._thread.start()

    def _run(self) -> None:
        assert self._pipe is not None
        with self._pipe:
            for line in self._pipe:
                text = line.decode(errors="replace")
                self._lines.append(text)
                if self._shown:
                    with contextlib.suppress(OSError):
                        self._shown.write(text)
                        self._shown.flush()

    def text(self) -> str:
        """Return all text read. Waits for the rest."""
        if self._pipe:
            self._thread.join(DRAIN_SECONDS)
        return "".join(self._lines)


def listens(pid: int) -> bool:
    """Return False if the process ignores SIGINT; True otherwise, also if unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    masks = {line.partition(":")[0]: line.partition(":")[2] for line in lines}
    return not int(masks["SigIgn"], 16) & 1 << (signal.SIGINT - 1)


def say(text: str, *, new_line: bool = False) -> None:
    """Print one line on standard error. Ignore a closed terminal."""
    with contextlib.suppress(OSError):
        # Print a new line after the ^C that a terminal shows.
        print(("\n" if new_line and sys.stderr.isatty() else "") + text, file=sys.stderr, flush=True)


def _requests() -> int:
    return len(_received) - _holds[0] if _holds else 0


def _on_signal(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    if not _holds or (_second_raises and _requests() > 1):
        raise KeyboardInterrupt


@contextmanager
def _listening() -> Iterator[None]:
    """Handle the signals in this block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: _handle(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle(number: signal.Signals) -> signal.Handlers | Callable[[int, FrameType | None], object] | int | None:
    """Handle a signal from here on, unless the parent ignores it, as `nohup` does. Return the old handler."""
    before = signal.getsignal(number)
    if before is not signal.SIG_IGN:
        signal.signal(number, _on_signal)
    return before


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _follow_parent()


def _follow_parent() -> None:
    """Make the kernel interrupt this process when the command that started it is killed."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
