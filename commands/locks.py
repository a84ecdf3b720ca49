"""Locks of a stack, Pulumi's and this checkout's, and leftover processes of dead `pulumi` runs.

A lock of a file or object-store backend is a JSON file below `.pulumi/locks/organization/PROJECT/STACK/`
(github.com/pulumi/pulumi v3.245.0, pkg/backend/diy/lock.go). Only its owner or `pulumi cancel` removes it. This
checkout's own lock lets only one command at a time change a stack.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from commands.environment import STATE, StackBusy
from commands.interrupts import print_notice
from commands.state_files import ATTRIBUTES_SUFFIX
from infra.local import leftovers
from infra.make_command import make_command

RUN_VARIABLE = "TRAINYARD_RUN"
"""Environment variable of every process of a `pulumi` run: `<checkout folder>:<stack>`."""
ENGINE = "pulumi"
"""Name of the process of Pulumi's engine."""
GRACE_SECONDS = 3.0
"""Seconds that a leftover process may take to end after each signal."""
WAIT_SECONDS = 60.0
"""Seconds to wait for a `pulumi` whose parent command was killed. The kernel has interrupted it."""
READ_SECONDS = 1.0
"""Seconds to wait until the holder of this checkout's lock has written its name into the lock."""
_LOCKED_MESSAGE = "the stack is currently locked by"
_OWNER = re.compile(r"(?P<place>\S+): created by (?P<user>\S+)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)")


def run_mark(checkout: Path, stack: str) -> str:
    """Return the value of RUN_VARIABLE for a stack of a checkout."""
    return f"{checkout}:{stack}"


def end_orphans(mark: str) -> int:
    """End the processes of runs whose `pulumi` is dead. Return their number."""
    orphans = orphans_of(mark)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in orphans_of(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        _wait(lambda: not orphans_of(mark), GRACE_SECONDS)
    return len(orphans)


def orphans_of(mark: str) -> list[int]:
    """Return the processes with the mark that have no living `pulumi` with that mark as an ancestor.

    A local cluster is left out, because it outlives the run that started it.
    """
    marked = dict[int, tuple[str, int]]()
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        is_marked = leftovers.environment_value(pid, RUN_VARIABLE) == mark
        if (
            is_marked
            and leftovers.environment_value(pid, leftovers.CLUSTER_VARIABLE) is None
            and (process := _process(pid))
        ):
            marked[pid] = process

    def has_engine(pid: int) -> bool:
        if pid not in marked:
            return False
        name, parent = marked[pid]
        return name == ENGINE or has_engine(parent)

    return [pid for pid in marked if not has_engine(pid)]


def _process(pid: int) -> tuple[str, int] | None:
    """Return the name and the parent of a process; None if it has ended or is a zombie."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").partition(" (")[2].rpartition(") ")
    except (OSError, UnicodeDecodeError):
        return None
    state, parent, *_ = rest.split()
    return None if state == "Z" else (name, int(parent))


def _wait(is_done: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition is true, at most for `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that created one of Pulumi's locks."""

    user: str
    host: str
    pid: int
    since: str

    @property
    def is_here(self) -> bool:
        """True if the lock was created on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """True if the owner may still run. A process id that another program has now does not count."""
        process = _process(self.pid)
        return not self.is_here or (process is not None and process[0] == ENGINE)

    def was_started_by(self, mark: str) -> bool:
        """Return True if a command of this checkout started the owner for the stack of the mark."""
        return self.is_here and leftovers.environment_value(self.pid, RUN_VARIABLE) == mark

    def wait(self) -> None:
        """Wait until the owner has ended, at most WAIT_SECONDS."""
        _wait(lambda: not self.is_alive, WAIT_SECONDS)


def free_locks(folder: Path, project: str, stack: str, mark: str, *, is_shared: bool) -> list[str]:
    """Remove the locks of dead owners from a folder backend. Return one sentence for each action.

    Call it while holding this checkout's stack lock; `mark` is the mark of the stack's runs. Raises StackBusy if an
    owner is alive, or may be alive on another machine.
    """
    done = []
    for lock in sorted((folder / ".pulumi" / "locks" / "organization" / project / stack).glob("*.json")):
        owner = _read(lock)
        if owner is None and is_shared and lock.exists():
            raise StackBusy(
                f"stack {stack}: its lock {lock} is truncated and names no owner; if no `pulumi` works on the stack on "
                f"any machine, remove the lock with {_cancel(stack)}"
            )
        if owner and owner.is_alive and owner.was_started_by(mark):
            # Its parent command was killed. The kernel has interrupted Pulumi, which ends soon.
            print_notice(
                f"stack {stack}: the command that started `pulumi` (pid {owner.pid}) was killed; waiting for it to end"
            )
            owner.wait()
        if owner and owner.is_alive:
            raise StackBusy(explain(stack, [owner], mark))
        if not lock.exists():
            continue
        lock.unlink()
        Path(f"{lock}{ATTRIBUTES_SUFFIX}").unlink(missing_ok=True)
        done.append(
            f"stack {stack}: removed the lock of a `pulumi` (pid {owner.pid}, since {owner.since}) that is dead"
            if owner
            else f"stack {stack}: removed its lock {lock.name}, which was truncated and names no owner"
        )
    return done


def _read(lock: Path) -> Owner | None:
    """Return the owner of a lock; None if the lock is gone, empty or half written."""
    try:
        found = json.loads(lock.read_text(encoding="utf-8"))
        return Owner(user=found["username"], host=found["hostname"], pid=int(found["pid"]), since=found["timestamp"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def owners_in(error: str) -> list[Owner]:
    """Return the owners that Pulumi's error names; empty for other errors."""
    text = error.partition(_LOCKED_MESSAGE)[2]
    return [
        Owner(user=each["user"], host=each["host"], pid=int(each["pid"]), since=each["since"])
        for each in _OWNER.finditer(text)
    ]


def explain(stack: str, owners: Sequence[Owner], mark: str) -> str:
    """Return the holders of Pulumi's locks and advice. Advise removing a lock only if its owner is certainly dead."""
    lines = []
    for each in owners:
        who = f"stack {stack}: locked since {each.since} by `pulumi` (pid {each.pid}) of {each.user} on {each.host}"
        if not each.is_here:
            what = f"wait until it ends; if it is certainly dead, remove its lock with {_cancel(stack)}"
        elif not each.is_alive:
            what = f"it is dead; remove its lock with {_cancel(stack)}, then run this again"
        elif each.was_started_by(mark):
            what = f"the command that started it was killed; wait until it ends, or stop it with `kill -INT {each.pid}`"
        else:
            what = "it is running; wait until it ends, or press Ctrl-C there, then run this again"
        lines.append(f"{who}; {what}")
    return "\n".join(lines)


def _cancel(stack: str) -> str:
    return f"{make_command('shell', STACK=stack)} and in it `pulumi cancel --yes --stack {stack}`"


@contextmanager
def only_command(stack: str, command: str) -> Iterator[None]:
    """Hold this checkout's lock of a stack. Raises StackBusy, naming the holder, while another command has it.

    The kernel frees the lock when this process ends for any reason. The file stays.
    """
    path = STATE / "locks" / stack
    path.parent.mkdir(parents=True, exist_ok=True)
    # Mode "a" does not empty the file of a holder.
    with path.open("a+", encoding="utf-8") as lock:
        _acquire(lock, stack)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        lock.truncate(0)
        lock.write(json.dumps({"command": command, "pid": os.getpid(), "since": since}))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def _acquire(lock: TextIO, stack: str) -> None:
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
