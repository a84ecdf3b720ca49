"""Supervisor that starts programs in order, restarts programs that end, and reaps orphans as process 1."""

from __future__ import annotations

import dataclasses
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from infra.local.key_files import CONTROL_PLANE_URL

FIRST_RESTART_SECONDS = 0.2
MAX_RESTART_SECONDS = 5.0


@dataclasses.dataclass(kw_only=True)
class Program:
    """Program to keep running."""

    name: str
    """Name in the supervisor's log."""
    argv: Sequence[str]
    log: Path
    """File for the program's output."""
    api_authority: Path | None = None
    """Certificate authority of the API server, if the server must be ready before the program starts."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Additional environment variables."""
    pass_fds: Sequence[int] = ()
    """File descriptors that the program inherits."""
    on_start: Callable[[int], None] | None = None
    """Function that the supervisor calls with the process id after each start."""
    process: subprocess.Popen[bytes] | None = None
    delay: float = FIRST_RESTART_SECONDS
    """Seconds between the last end and the next start."""
    not_before: float = 0.0
    """Earliest time of the next start, on the monotonic clock."""
    started: float = 0.0
    """Time of the last start, on the monotonic clock."""

    def may_start(self) -> bool:
        """Return True if the program is not running, its delay is over, and the API server is ready if required."""
        if self.process is not None or time.monotonic() < self.not_before:
            return False
        return self.api_authority is None or is_api_ready(self.api_authority)

    def start(self) -> None:
        """Start the program with its output appended to its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                pass_fds=self.pass_fds,
            )
        self.started = time.monotonic()
        if self.on_start:
            self.on_start(self.process.pid)

    def try_start(self) -> None:
        """Start the program. If the start fails, for example for lack of memory, schedule another attempt."""
        try:
            self.start()
            write_log(f"{self.name} started")
        except (OSError, RuntimeError) as error:
            write_log(f"{self.name} failed to start: {error}")
            if self.process is None:
                self.not_before = time.monotonic() + MAX_RESTART_SECONDS
            else:
                # Do not call `Popen.kill`: it could reap the process, and then `reap` would not schedule the restart.
                os.kill(self.process.pid, signal.SIGKILL)

    def schedule_restart(self, status: int) -> None:
        """Schedule the restart after an end with wait status `status`. A run of over 10 s resets the delay."""
        seconds = time.monotonic() - self.started
        self.delay = FIRST_RESTART_SECONDS if seconds > 10 else min(self.delay * 2, MAX_RESTART_SECONDS)
        self.process, self.not_before = None, time.monotonic() + self.delay
        code = os.waitstatus_to_exitcode(status)
        write_log(f"{self.name} ended with {code} after {seconds:.1f} s; restart in {self.delay:.1f} s")


def write_log(text: str) -> None:
    """Write one line to the supervisor's own log. Drop the line if the disk is full."""
    with suppress(OSError):
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def is_api_ready(authority: Path) -> bool:
    """Return True if the API server reports that it is ready. Accept only a certificate of `authority`."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(f"{CONTROL_PLANE_URL}/readyz", timeout=2, context=context) as reply:
            return bool(reply.status == 200)
    except (HTTPException, OSError):
        return False


def keep_running(programs: Sequence[Program], *, poll_seconds: float = 0.1) -> None:
    """Run `programs` until SIGTERM or SIGINT, then send SIGTERM to them in reverse order.

    Also reap orphans, as process 1 must.
    """
    stop = False

    def on_signal(_signal: int, _frame: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    while not stop:
        for program in programs:
            if program.may_start():
                program.try_start()
        reap(programs)
        time.sleep(poll_seconds)
    for program in reversed(programs):
        if program.process is not None:
            program.process.terminate()


def reap(programs: Sequence[Program]) -> None:
    """Reap every child process that has ended. Schedule the restart of each of `programs`, and ignore orphans."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for program in programs:
            if program.process is not None and program.process.pid == pid:
                program.process.returncode = os.waitstatus_to_exitcode(status)
                program.schedule_restart(status)
