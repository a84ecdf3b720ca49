"""Pulumi's own stack locks: the holder, its state, and advice for the user.

A lock of a file or object-store backend is a JSON file below `.pulumi/locks/organization/PROJECT/STACK/`
(github.com/pulumi/pulumi v3.245.0, pkg/backend/diy/lock.go). Only its owner or `pulumi cancel` removes it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commands.checkpoint import ATTRIBUTES
from commands.errors import StackBusy
from commands.interrupts import say
from commands.orphans import ENGINE, RUN
from infra.local import leftovers

WAIT_SECONDS = 60.0
"""Seconds that a `pulumi` whose command was killed may take to end. Pulumi was interrupted too."""
_LOCKED = "the stack is currently locked by"
_OWNER = re.compile(r"(?P<place>\S+): created by (?P<user>\S+)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that created a lock."""

    user: str
    host: str
    pid: int
    since: str
    place: str
    """File or URL of the lock."""

    @property
    def is_here(self) -> bool:
        """True if the lock was created on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """True if the owner may still run. An id that another program has taken over does not count."""
        if not self.is_here:
            return True
        return _name(self.pid) == ENGINE if Path("/proc/self").exists() else _answers(self.pid)


def free(folder: Path, project: str, stack: str, mark: str, *, is_shared: bool) -> list[str]:
    """Remove the locks of dead owners from a folder backend. Return one sentence for each action.

    Call it while holding this checkout's stack lock; `mark` is the mark of the stack's runs. Raises StackBusy if an
    owner is alive, or may be alive on another machine.
    """
    done = []
    for lock in sorted((folder / ".pulumi" / "locks" / "organization" / project / stack).glob("*.json")):
        owner = _read(lock)
        if owner is None and is_shared and lock.exists():
            raise StackBusy(
                f"stack {stack}: its lock {lock} is cut off and names no owner; if no `pulumi` works on the stack on "
                f"any machine, remove the lock with {_cancel(stack)}"
            )
        if owner and owner.is_alive:
            _wait_for_orphan(owner, stack, mark)
        if owner and owner.is_alive:
            raise StackBusy(explain(stack, [owner], mark))
        if not lock.exists():
            continue
        lock.unlink()
        Path(f"{lock}{ATTRIBUTES}").unlink(missing_ok=True)
        done.append(
            f"stack {stack}: removed the lock of a `pulumi` (pid {owner.pid}, since {owner.since}) that is dead"
            if owner
            else f"stack {stack}: removed its lock {lock.name}, which was cut off and names no owner"
        )
    return done


def _wait_for_orphan(owner: Owner, stack: str, mark: str) -> None:
    """Wait for a `pulumi` of this stack whose command was killed. Pulumi was interrupted too and ends soon."""
    if not owner.is_here or leftovers.environment_value(owner.pid, RUN) != mark:
        return
    say(f"stack {stack}: the command that started `pulumi` (pid {owner.pid}) was killed; waiting for it to end")
    deadline = time.monotonic() + WAIT_SECONDS
    while owner.is_alive and time.monotonic() < deadline:
        time.sleep(0.1)


def owners_in(error: str) -> list[Owner]:
    """Return the owners that Pulumi's error names; empty for other errors."""
    if _LOCKED not in error:
        return []
    return [
        Owner(user=each["user"], host=each["host"], pid=int(each["pid"]), since=each["since"], place=each["place"])
        for each in _OWNER.finditer(error.partition(_LOCKED)[2])
    ]


def explain(stack: str, owners: Sequence[Owner], mark: str) -> str:
    """Return the lock's holder and advice. Advise removing a lock only if its owner is certainly dead."""
    lines = []
    for each in owners:
        who = f"stack {stack}: locked since {each.since} by `pulumi` (pid {each.pid}) of {each.user} on {each.host}"
        if not each.is_here:
            what = f"wait until it ends; if it is certainly dead, remove its lock with {_cancel(stack)}"
        elif not each.is_alive:
            what = f"it is dead; remove its lock with {_cancel(stack)}, then run this again"
        elif leftovers.environment_value(each.pid, RUN) == mark:
            what = f"the command that started it was killed; wait until it ends, or stop it with `kill -INT {each.pid}`"
        else:
            what = "it is running; wait until it ends, or press Ctrl-C there, then run this again"
        lines.append(f"{who}; {what}")
    return "\n".join(lines)


def _cancel(stack: str) -> str:
    return f"`make shell STACK={stack}` and in it `pulumi cancel --yes --stack {stack}`"


def _read(lock: Path) -> Owner | None:
    """Return the owner; None if the lock is gone, empty or half written."""
    try:
        found = json.loads(lock.read_text(encoding="utf-8"))
        return Owner(
            user=found["username"],
            host=found["hostname"],
            pid=int(found["pid"]),
            since=found["timestamp"],
            place=str(lock),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name(pid: int) -> str:
    """Return the name of a process; empty if it has ended or is a zombie."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").partition(" (")[2].rpartition(") ")
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if rest.startswith("Z") else name


def _answers(pid: int) -> bool:
    """Return True if a process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
