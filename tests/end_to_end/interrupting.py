"""Run a make target in a separate terminal and interrupt it at a given moment, in one of the ways that users do."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from commands.locks import RUN_VARIABLE
from infra.local.leftovers import environment_value
from tests.end_to_end.conftest import Checkout, is_pulumi_in, processes

LIMIT_SECONDS = 300.0
WAYS = ("key", "command", "make", "twice", "kill")
"""Ctrl-C in the terminal; SIGINT to the command alone; SIGTERM to make; Ctrl-C twice; kill -9 of `pulumi`."""
MODULES = {"up": b"commands.up", "down": b"commands.down", "rehearse": b"commands.rehearse"}


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """Make target that has ended."""

    way: str
    moment: str
    """Time of the signal."""
    status: int
    """Exit status, as in subprocess."""
    said: str
    took: float
    """Seconds from the signal to the end."""

    def __str__(self) -> str:
        return f"{self.way} {self.moment}, ended {self.took:.1f} s later with {self.status}:\n{self.said}"


def interrupt(checkout: Checkout, target: str, way: str, after: float, text: str = "") -> Interrupted:
    """Run `make TARGET`, send the signal some seconds after it has printed `text`, and wait for its end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(checkout.folder)
        os.execvpe("make", ["make", *target.split()], checkout.environment() | {"TERM": "dumb"})
    said, begun, sent = b"", time.monotonic(), 0.0
    counted = 0.0 if text else begun
    twice = way == "twice"
    while True:
        now = time.monotonic()
        assert now - begun < LIMIT_SECONDS, said.decode(errors="replace")
        if not counted and text.encode() in said:
            counted = now
        if not sent and counted and now - counted >= after:
            _send(checkout, target, pid, terminal, way)
            sent = now
        if twice and sent and now - sent >= 1.0:
            twice = False
            _send(checkout, target, pid, terminal, way)
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:
                break  # The terminal's last process has ended.
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return Interrupted(
        way=way,
        moment=f"{after:.2f} s after {text or 'its start'}" if sent else "never",
        status=os.waitstatus_to_exitcode(status),
        said=said.decode(errors="replace"),
        took=time.monotonic() - sent if sent else 0.0,
    )


def _send(checkout: Checkout, target: str, make: int, terminal: int, way: str) -> None:
    with contextlib.suppress(OSError):
        if way in ("key", "twice"):
            os.write(terminal, b"\x03")
        elif way == "make":
            os.kill(make, signal.SIGTERM)
        for pid in processes() if way in ("command", "kill") else ():
            if way == "kill" and is_pulumi_in(pid, checkout.folder):
                os.kill(pid, signal.SIGKILL)
            if way == "command" and _is_command(pid, checkout.folder, MODULES[target.split()[0]]):
                os.kill(pid, signal.SIGINT)


def _is_command(pid: int, folder: Path, module: bytes) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[1:3] == [b"-m", module] and Path(f"/proc/{pid}/cwd").readlink() == folder
    except OSError:
        return False


def left_by_runs(checkout: Checkout) -> list[str]:
    """Return leftovers of `pulumi` runs: locks, and processes that do not belong to the cluster."""
    found = [str(path) for path in (checkout.folder / ".trainyard").glob("pulumi/.pulumi/locks/**/*.json")]
    mark = f"{checkout.folder}:"
    for pid in processes():
        if (environment_value(pid, RUN_VARIABLE) or "").startswith(mark) and not environment_value(
            pid, "TRAINYARD_CLUSTER"
        ):
            found.append(f"process {pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
    return found
