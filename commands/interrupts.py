"""Ctrl-C, SIGTERM and SIGHUP: interrupt the child program, wait for its end, print a closing sentence.

This file also defines the error that ends a command and the exit statuses of all commands.

Pulumi 3.245 handles SIGINT in github.com/pulumi/pulumi, pkg/backend/cancellation_scope.go. The first SIGINT cancels: no
new operation begins, running operations end, Pulumi saves the state and releases the lock. The second SIGINT
terminates: Pulumi abandons running operations, which stay in the state as pending. Pulumi listens only while the engine
runs (pkg/backend/diy/backend.go, `apply`). Before that, and afterwards while Pulumi saves and unlocks, SIGINT ends the
process and its lock stays. This module therefore starts Pulumi with SIGINT ignored. A Go program that starts this way
ignores SIGINT until it calls `signal.Notify`, and again after `signal.Stop` (https://pkg.go.dev/os/signal). This module
sends SIGINT when Pulumi no longer ignores it.

Plugins have their own process groups (sdk/go/common/util/cmdutil/child_unix.go) and Pulumi tells them to end.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import IO, TextIO

from infra.make_command import make_command
from infra.project import CHECKOUT
from settings.text import wrap

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STILL_RUNNING = "the stack and its jobs continue"
"""Closing sentence of commands that only read."""
POLL_SECONDS = 0.1
REPORT_SECONDS = 5.0
"""Seconds between two progress lines of a stopping command."""
DRAIN_SECONDS = 5.0
"""Seconds that output may take to arrive after a child has ended. A leftover process may hold the pipe open."""
STDOUT = 1
"""File descriptor of standard output."""
PR_SET_PDEATHSIG = 1
FULL_BYTES = 1 << 20
"""Free bytes below which a disk counts as full."""
FILE_REMEDIES = {
    errno.ENOSPC: "free some disk space, then run the command again",
    errno.EDQUOT: "free some of your disk quota, then run the command again",
    errno.EROFS: "mount the file system writable, or copy the project to a writable folder",
    errno.EACCES: "give this user access to that path, then run the command again",
    errno.EPERM: "give this user access to that path, then run the command again",
    errno.EISDIR: "that path must be a file; move the folder away",
    errno.ENOTDIR: "a part of that path is a file and must be a folder; move the file away",
}
"""Error number of a file operation -> what to do."""
TOOLS = ("pulumi", "kubectl")
"""Programs that set-up installs into the cache folder. A new cache folder lacks them."""
_LIBC = ctypes.CDLL(None)
_signals: list[int] = []
"""Signals received."""
_held_since: list[int] = []
"""For each block that holds signals: the number of signals received before it."""
_finishing = 0
"""Number of active blocks of `finish_before_stopping`."""
_second_raises = False
"""True in a block of `finish_unless_repeated`."""
_closing = ""
"""Sentence that the command prints if a signal stops it."""


class ExitStatus(IntEnum):
    """Exit status of a command."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    NOT_CONFIRMED = 3
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[ExitStatus, str] = {
    ExitStatus.SUCCESS: "the command succeeded; `up`, `rerun`, `resume` and `logs`: all followed jobs are complete "
    "(`up` does not follow stopped, suspended or interactive jobs); `exec` returns the status of its program instead",
    ExitStatus.FAILURE: "the command failed, a followed job failed, `preview` found a reason not to merge, `doctor` "
    "found invalid settings, `verify-empty` found leftovers, or a program such as `head` closed the output. An "
    "unknown stack has this status too, except with `preview` and `verify-empty`",
    ExitStatus.USAGE: "wrong arguments, no folder with stacks, settings that `preview` or `verify-empty` cannot read, "
    "a cloud that `verify-empty` cannot query, or a value of `config set` that is an empty secret or would make valid "
    "settings invalid; the command has changed nothing",
    ExitStatus.NOT_CONFIRMED: "the user answered no, or there was no terminal for the answer and no `--yes`",
    ExitStatus.HANGUP: "the terminal closed (SIGHUP)",
    ExitStatus.INTERRUPTED: "Ctrl-C (SIGINT)",
    ExitStatus.TERMINATED: "the command was terminated (SIGTERM)",
}
"""Meaning of each exit status. docs/commands.md has them as a table."""


class CommandError(RuntimeError):
    """Error that ends a command. The message has the problem and what to do."""

    status: int = ExitStatus.FAILURE

    def report(self) -> str:
        """Return the message that ends the command."""
        return str(self)


class Interrupted(KeyboardInterrupt):
    """Signal that stopped the command. The message gives the state of the stack and the command that continues."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """Child program that has ended."""

    status: int
    """Exit status as in subprocess: negative for the signal that ended it."""
    stdout: str
    stderr: str
    is_stopped: bool
    """True if this process received a signal while the child ran, even if the child ended without receiving it."""
    is_abandoned: bool = False
    """True if a second signal told the child to end without finishing its operations."""


def describe_file_error(error: OSError) -> str:
    """Return a sentence about an error of a file, with what to do."""
    if error.errno == errno.ENOENT and error.filename in TOOLS:
        return f"{error.filename} is not installed; run {make_command('setup', STACK='')}, then run the command again"
    file = error.filename if error.filename is not None else f"a file{_on_full_disk(error)}"
    remedy = FILE_REMEDIES.get(error.errno or 0, "check that path, then run the command again")
    return f"{file}: {error.strerror}; {remedy}"


def _on_full_disk(error: OSError) -> str:
    """Return words about the full disk that caused an error without a file name; empty if no disk in use is full."""
    if error.errno != errno.ENOSPC:
        return ""
    folders = (Path(), Path(".trainyard"), Path.home(), Path(os.environ.get("TMPDIR", "/tmp")))
    full = next((each for each in folders if each.is_dir() and shutil.disk_usage(each).free < FULL_BYTES), None)
    return f" on the disk of {full.resolve()}" if full else ""


def discard_output() -> None:
    """Discard further output. Otherwise Python would report the failed write once more when it exits."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def set_closing(text: str) -> None:
    """Set the sentence that the command prints if a signal stops it from now on."""
    global _closing
    _closing = text


def run_command(name: str, command: Callable[[], int]) -> int:
    """Run this process's command. Return its exit status, the status of its error, or 128 + the number of a signal."""
    set_closing("nothing has changed")
    for number in SIGNALS:
        _handle(number)
    try:
        status = command()
        if status == ExitStatus.INTERRUPTED and _signals:
            status = 128 + _signals[0]  # The command does not know which of SIGNALS arrived.
        if sys.stdout:
            sys.stdout.flush()
    except CommandError as error:
        print_notice(f"{name}: {error.report()}")
        status = error.status
    except BrokenPipeError:
        discard_output()
        status = 1
    except OSError as error:
        # An error without a file name, and not in FILE_REMEDIES, is a bug in the program, so raise it.
        if error.filename is None and error.errno not in FILE_REMEDIES:
            raise
        print_notice(f"{name}: {describe_file_error(error)}")
        status = 1
    except KeyboardInterrupt as error:
        _held_since.append(len(_signals))
        print_notice(f"{name}: stopped; {str(error) or _closing}", new_line=True)
        status = 128 + (_signals[0] if _signals else signal.SIGINT)
    # A signal while Python shuts down would print a traceback.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return status


@contextmanager
def hold_signals() -> Iterator[None]:
    """Let the block finish when signals arrive. If any arrived, raise KeyboardInterrupt at its end."""
    with _handling_signals():
        _held_since.append(len(_signals))
        try:
            yield
        except Exception as error:
            if _signal_count():
                raise KeyboardInterrupt from error
            raise
        finally:
            requests = _signal_count()
            _held_since.pop()
        if requests and not _held_since:
            raise KeyboardInterrupt


@contextmanager
def finish_before_stopping() -> Iterator[None]:
    """Hold signals and do not pass the first one to children. Use this for blocks that must not stop halfway."""
    global _finishing
    _finishing += 1
    try:
        with hold_signals():
            yield
    finally:
        _finishing -= 1


@contextmanager
def finish_unless_repeated(name: str, waits_for: str) -> Iterator[None]:
    """Finish this block after a first signal and report progress. A second signal raises KeyboardInterrupt."""
    global _second_raises
    begun, done = len(_signals), threading.Event()
    progress = _StopProgress(name, waits_for, lambda: waits_for)

    def report() -> None:
        while not done.wait(POLL_SECONDS):
            if len(_signals) > begun:
                progress.report()

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        with hold_signals():
            _second_raises = True
            yield
    finally:
        _second_raises = False
        done.set()
        thread.join()


class _StopProgress:
    """Lines that a command prints while it stops: one immediately, then one every few seconds."""

    def __init__(self, name: str, finishes: str, waits_for: Callable[[], str]) -> None:
        self._name, self._finishes, self._waits_for = name, finishes, waits_for
        self._since = self._reported = 0.0

    def report(self) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if not self._since:
            self._since = self._reported = now
            print_notice(
                f"stopping: {self._name} finishes {self._finishes}; press Ctrl-C again to give up", new_line=True
            )
        elif now - self._reported >= REPORT_SECONDS:
            self._reported = now
            print_notice(f"stopping: after {now - self._since:.0f} s still waiting for {self._waits_for()}")


def run_child(
    words: Sequence[str],
    *,
    name: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    quiet: bool = False,
    keeps_errors: bool = False,
    stdout: TextIO | None = None,
    errors_to: TextIO | io.TextIOBase | None = None,
    ignores_at_start: bool = False,
    waits_for: Callable[[], str] = lambda: "",
    on_poll: Callable[[bool], None] = lambda _is_stopping: None,
) -> Child:
    """Run a program to its end in its own session, so that a terminal's Ctrl-C reaches only this process.

    `quiet` returns all output and shows none. `keeps_errors` returns standard error and also copies it to `errors_to`,
    by default this process's standard error. `ignores_at_start` starts the program with SIGINT ignored. `waits_for`
    returns the operations that a stopped program still finishes, for messages. This function calls `on_poll` while the
    program runs, with True after a signal.
    """
    with _handling_signals():
        _held_since.append(len(_signals))
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if quiet else stdout,
                stderr=subprocess.PIPE if quiet or keeps_errors else None,
                start_new_session=True,
                # `preexec_fn` is safe: both functions only make system calls, so they wait for no other thread.
                preexec_fn=_ignore_interrupts if ignores_at_start else follow_parent,
            )
            output = _PipeReader(process.stdout, None)
            errors = _PipeReader(process.stderr, None if quiet else errors_to or sys.stderr)
            forwarder = _SignalForwarder(process, name, waits_for)
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                forwarder.step(_signal_count())
                on_poll(_signal_count() > 0)
            return Child(
                status=process.returncode,
                stdout=output.text(),
                stderr=errors.text(),
                is_stopped=forwarder.num_stop_requests > 0,
                is_abandoned=forwarder.is_abandoned,
            )
        finally:
            _held_since.pop()


def run_set_up(words: Sequence[str], closing: str = "", stdout: TextIO | None = None) -> int:
    """Run a program of set-up. Return its exit status. Raises Interrupted with the closing sentence."""
    done = run_child(words, name="set-up", cwd=CHECKOUT, stdout=stdout)
    if done.is_stopped:
        raise Interrupted(closing)
    return done.status


class _SignalForwarder:
    """Forwarder of signals to one child. It prints progress until the child ends."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, waits_for: Callable[[], str]) -> None:
        self._process, self._name = process, name
        self._requests = self._sent = 0
        self._progress = _StopProgress(name, "the operations in progress", lambda: waits_for() or f"{name} to end")

    def step(self, signals: int) -> None:
        """Act on the number of signals received so far."""
        if not signals:
            return
        if not self._requests or self._process.poll() is None:
            self._progress.report()
        self._requests = signals
        self._forward(self.num_stop_requests)

    @property
    def is_abandoned(self) -> bool:
        """True if a second signal told the child to end without finishing its operations."""
        return self._sent > 1

    @property
    def num_stop_requests(self) -> int:
        """Number of stop requests for the child. A block of `finish_before_stopping` does not pass on the first one."""
        return self._requests - 1 if _finishing else self._requests

    def _forward(self, wanted: int) -> None:
        """Forward the stop requests: the first interrupts the child, the second ends it at once, the third kills it."""
        pid = self._process.pid
        if self._sent == 0 < wanted and (handles_interrupts(pid) or wanted > 1):
            self._sent = 1
            self._send(signal.SIGINT)
        if self._sent == 1 < wanted:
            self._sent = 2
            self._send(signal.SIGINT if handles_interrupts(pid) else signal.SIGTERM)
            print_notice(f"giving up: {self._name} ends at once; press Ctrl-C again to kill it", new_line=True)
        if self._sent == 2 < wanted:
            self._sent = 3
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


class _PipeReader:
    """Reader of a pipe in a thread. It keeps the text, and copies the text to `shown` if set."""

    def __init__(self, pipe: IO[bytes] | None, shown: TextIO | io.TextIOBase | None) -> None:
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
                    with suppress(OSError):
                        self._shown.write(text)
                        self._shown.flush()

    def text(self) -> str:
        """Wait for the rest of the text and return all of it."""
        if self._pipe:
            self._thread.join(DRAIN_SECONDS)
        return "".join(self._lines)


def handles_interrupts(pid: int) -> bool:
    """Return True if the process does not ignore SIGINT, or if that is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    masks = {line.partition(":")[0]: line.partition(":")[2] for line in lines}
    return not int(masks["SigIgn"], 16) & 1 << (signal.SIGINT - 1)


def print_notice(text: str, *, new_line: bool = False) -> None:
    """Print one line on standard error. Ignore a closed terminal."""
    with suppress(OSError):
        # A terminal shows ^C, so begin a new line after it.
        print(("\n" if new_line and sys.stderr.isatty() else "") + wrap(text, sys.stderr), file=sys.stderr, flush=True)


def _signal_count() -> int:
    return len(_signals) - _held_since[0] if _held_since else 0


def _on_signal(number: int, _frame: FrameType | None) -> None:
    # A closing terminal sends SIGHUP to its foreground program, and its shell may send it again.
    if number == signal.SIGHUP and number in _signals:
        return
    _signals.append(number)
    if not _held_since or (_second_raises and _signal_count() > 1):
        raise KeyboardInterrupt


@contextmanager
def _handling_signals() -> Iterator[None]:
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
    """Handle a signal from now on, unless the process ignores it, as after `nohup`. Return the old handler."""
    before = signal.getsignal(number)
    if before is not signal.SIG_IGN:
        signal.signal(number, _on_signal)
    return before


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follow_parent()


def follow_parent() -> None:
    """Make the kernel interrupt this process when its parent, the command, dies."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
