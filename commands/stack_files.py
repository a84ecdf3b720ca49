"""State files and locks of one stack in a folder backend, this checkout's lock, and processes of dead `pulumi` runs.

Layout of the state: github.com/pulumi/pulumi v3.274.1, pkg/backend/diy/store.go and state.go. Before each write Pulumi
copies the state to `.bak`. After each command it copies the state to `.pulumi/backups/`. A full disk, a lost network
folder, a power failure or an editor can damage a file; `kill -9` rarely damages a file, because Pulumi writes a
temporary file and renames it.

A lock of Pulumi is a JSON file below `.pulumi/locks/organization/PROJECT/STACK/` (pkg/backend/diy/lock.go). In Pulumi,
only its owner or `pulumi cancel` removes it. This checkout's own lock, `.trainyard/locks/STACK`, lets only one command
at a time change a stack.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from commands.environment import STATE, StackBusy, StateBroken
from commands.interrupts import print_notice
from infra.local import leftovers
from infra.local.settings import PLAIN_NAMES
from infra.make_command import make_command

ATTRIBUTES_SUFFIX = ".attrs"
"""Suffix of the file that a folder backend writes next to each of its files, with its content type. It may be missing:
https://pkg.go.dev/gocloud.dev/blob/fileblob"""
BACKUP_SUFFIX = ".bak"
"""Suffix of the state before the last write."""
BROKEN_SUFFIX = ".broken"
"""Suffix of a broken state that `StateFiles` set aside. Pulumi reads only files with the suffix of a format."""
JSON_SUFFIX = ".json"
STACK_TYPE = "pulumi:pulumi:Stack"
"""Type of the resource that has the outputs of a stack."""
SECRET_KEY = "4dabf18193072939515e22adb298388d"
"""Key of a secret value in a state:
https://github.com/pulumi/pulumi/blob/v3.274.1/sdk/go/common/resource/sig/sig.go"""
FORMATS = (JSON_SUFFIX, ".json.gz", ".json.zst")
"""Formats of a state. PULUMI_DIY_BACKEND_GZIP and PULUMI_DIY_BACKEND_ZSTD compress it. Trainyard repairs only JSON."""
DEPLOYMENT_TYPES = {
    "manifest": dict,
    "secrets_providers": dict,
    "resources": list,
    "pending_operations": list,
    "metadata": dict,
}
"""Key of a deployment in a state -> type of its value:
https://github.com/pulumi/pulumi/blob/v3.274.1/sdk/go/common/apitype/core.go"""
RESOURCE_TYPES = {
    **dict.fromkeys(("urn", "type", "id", "parent", "provider"), str),
    **dict.fromkeys(("custom", "delete", "protect", "external", "retainOnDelete"), bool),
    **dict.fromkeys(("inputs", "outputs", "propertyDependencies"), dict),
    **dict.fromkeys(("dependencies", "initErrors", "aliases"), list),
}
"""Key of a resource in a state -> type of its value."""
RUN_VARIABLE = "TRAINYARD_RUN"
"""Environment variable of every process of a `pulumi` run. Its value is `<project folder>:<stack>`, the run's mark."""
ENGINE = "pulumi"
"""Name of the process of Pulumi's engine."""
GRACE_SECONDS = 3.0
"""Seconds that a leftover process may take to end after each signal."""
WAIT_SECONDS = 60.0
"""Seconds to wait for a `pulumi` whose parent command was killed. The kernel has sent it SIGINT
(`interrupts.follow_parent`)."""
READ_SECONDS = 1.0
"""Seconds that the holder of this checkout's lock may take to write its command into the lock."""
_LOCKED_MESSAGE = "the stack is currently locked by"
_OWNER = re.compile(r"(?P<place>\S+): created by (?P<user>\S+)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)")


def backend_folder(backend: str, checkout: Path) -> Path | None:
    """Return the folder of a `file://` backend; None for other backends. Its path may be relative to `checkout`."""
    if not backend.startswith("file://"):
        return None
    return checkout / Path(backend.removeprefix("file://").partition("?")[0]).expanduser()


def project_name(folder: Path) -> str:
    """Return the name of the Pulumi project in the folder with `Pulumi.yaml`."""
    return str(yaml.safe_load((folder / "Pulumi.yaml").read_text(encoding="utf-8"))["name"])


@dataclass(frozen=True)
class StateFiles:
    """State files of a stack."""

    folder: Path
    """Folder of the backend."""
    project: str
    """Name of the Pulumi project."""
    stack: str

    @property
    def exists(self) -> bool:
        """True if the backend has the stack."""
        return any((self._stacks / f"{self.stack}{each}").exists() for each in FORMATS)

    @property
    def is_destroyed(self) -> bool:
        """True if only components and providers are left, which an interrupted `destroy` keeps; False if unknown."""
        try:
            latest = _content(self.path)["checkpoint"]["latest"] or {}
            left = [each for each in latest.get("resources") or [] if each.get("custom")]
            return not latest.get("pending_operations") and all(
                each["type"].startswith("pulumi:providers:") for each in left
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @property
    def is_broken(self) -> bool:
        """True if the stack has a state that Pulumi cannot read, or that is empty."""
        return self.path.exists() and not _is_state(self.path)

    def repair(self) -> list[str]:
        """Repair the state. Return one sentence for each action.

        Replace a damaged state with `.bak`, or else with the newest intact backup of an earlier command. `.bak`, the
        state before the last write, lists resources in creation as pending, so no resource is lost. Raises StateBroken
        if no intact copy exists.
        """
        done, backup = [], Path(f"{self.path}{BACKUP_SUFFIX}")
        for file in (self.path, backup):
            attributes = Path(f"{file}{ATTRIBUTES_SUFFIX}")
            if attributes.exists() and not _is_object(attributes):
                attributes.unlink()
                done.append(f"{attributes.name} was truncated and is removed")
        state = self.path
        if not self.is_broken:
            return done
        # Backup names contain the time in nanoseconds, so their order is the order of time.
        folder = self.folder / ".pulumi" / "backups" / self.project / self.stack
        copies = [backup, *sorted(folder.glob(f"*{JSON_SUFFIX}"), reverse=True)]
        copy = next((each for each in copies if _is_state(each)), None)
        if copy is None:
            raise StateBroken(
                f"stack {self.stack}: its state {state} is damaged and has no intact copy; its resources may still "
                "exist, but Pulumi does not know them; restore that file, or remove what exists: "
                "docs/troubleshooting.md says how"
            )
        shutil.copyfile(state, f"{state}{BROKEN_SUFFIX}")
        _replace(state, copy.read_bytes())
        age = "before the last write" if copy == backup else f"at the end of an earlier command ({copy.name})"
        kept = f"{state.name}{BROKEN_SUFFIX}"
        done.append(f"{state.name} was damaged; using the state {age}; the broken file is kept as {kept}")
        return done

    def contains(self, text: bytes) -> bool:
        """Return True if the state contains the text."""
        return self.path.exists() and text in self.path.read_bytes()

    def set_aside(self) -> Path:
        """Rename a broken state, so that the stack counts as new. Return the new name."""
        return self.path.rename(f"{self.path}{BROKEN_SUFFIX}")

    def pending_operations(self) -> list[str]:
        """Return the operations that Pulumi runs or ran when it died, such as `creating the cluster's processes`."""
        try:
            latest = _content(self.path)["checkpoint"]["latest"] or {}
            pending = latest.get("pending_operations") or []
            names = [each["resource"]["urn"].rpartition("::")[2] for each in pending]
            return [f"{each['type']} {PLAIN_NAMES.get(name, name)}" for each, name in zip(pending, names, strict=True)]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def outputs(self) -> dict[str, Any]:
        """Return the outputs without secrets, read without Pulumi; empty if the stack is not up or is unreadable."""
        try:
            resources = _content(self.path)["checkpoint"]["latest"]["resources"]
            found = next(each for each in resources if each["type"] == STACK_TYPE).get("outputs") or {}
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            return {}
        return {name: value for name, value in found.items() if not (isinstance(value, dict) and SECRET_KEY in value)}

    @property
    def version(self) -> tuple[int, int, int]:
        """Inode, size and modification time of the state file. A write of the state changes them."""
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    @classmethod
    def all_in(cls, folder: Path) -> list[StateFiles]:
        """Return the uncompressed state files of all stacks of a folder backend, by project and name."""
        found = sorted((folder / ".pulumi" / "stacks").glob(f"*/*{JSON_SUFFIX}"))
        return [cls(folder, each.parent.name, each.name.removesuffix(JSON_SUFFIX)) for each in found]

    @property
    def _stacks(self) -> Path:
        return self.folder / ".pulumi" / "stacks" / self.project

    @property
    def path(self) -> Path:
        """Path of the stack's state."""
        return self._stacks / f"{self.stack}{JSON_SUFFIX}"


def _replace(file: Path, content: bytes) -> None:
    """Replace a file in one step."""
    draft = file.with_name(f"{file.name}.new")
    with draft.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)


def _content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def _is_object(file: Path) -> bool:
    try:
        return isinstance(_content(file), dict)
    except (OSError, ValueError):
        return False


def _is_state(file: Path) -> bool:
    """Return True if a file is a state whose values have Pulumi's types. A new stack has no deployment."""
    try:
        content = _content(file)
        checkpoint = content["checkpoint"]
        latest: dict[str, Any] = checkpoint["latest"] if not checkpoint.get("stack") else checkpoint.get("latest") or {}
        resources = latest.get("resources") or []
        pending = [each["resource"] for each in latest.get("pending_operations") or []]
        return (
            type(content["version"]) is int
            and _has_types(latest, DEPLOYMENT_TYPES)
            and all(
                each["urn"] and each["type"] and _has_types(each, RESOURCE_TYPES) for each in [*resources, *pending]
            )
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _has_types(found: Mapping[str, Any], types: Mapping[str, type]) -> bool:
    """Return True if each present value has its type. Go reads null as the empty value of every type."""
    return all(found.get(key) is None or isinstance(found[key], each) for key, each in types.items())


def run_mark(project: Path, stack: str) -> str:
    """Return the value of RUN_VARIABLE for a stack of a project."""
    return f"{project}:{stack}"


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
    """Return the processes with the mark, except `pulumi` itself, its descendants and the local cluster."""
    marked = dict[int, tuple[str, int]]()
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        if leftovers.environment_value(pid, RUN_VARIABLE) != mark:
            continue
        is_in_cluster = leftovers.environment_value(pid, leftovers.CLUSTER_VARIABLE) is not None
        if not is_in_cluster and (process := _process(pid)):
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
    deadline = time.monotonic() + seconds
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class LockOwner:
    """Process that created one of Pulumi's locks."""

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
        """True if the owner may still run. An owner on another machine always may."""
        process = _process(self.pid)
        return not self.is_here or (process is not None and process[0] == ENGINE)

    def was_started_by(self, mark: str) -> bool:
        """Return True if the owner is on this machine and has the mark."""
        return self.is_here and leftovers.environment_value(self.pid, RUN_VARIABLE) == mark

    def wait(self) -> None:
        """Wait until the owner has ended, at most WAIT_SECONDS."""
        _wait(lambda: not self.is_alive, WAIT_SECONDS)


def free_locks(folder: Path, project: str, stack: str, mark: str, *, is_shared: bool) -> list[str]:
    """Remove the locks of dead owners. Return a sentence for each. Raises StackBusy if an owner may be alive.

    The caller must hold this checkout's lock.
    """
    done = []
    for lock in sorted((folder / ".pulumi" / "locks" / "organization" / project / stack).glob("*.json")):
        owner = _lock_owner(lock)
        if owner is None and is_shared and lock.exists():
            raise StackBusy(
                f"stack {stack}: its lock {lock} is truncated and names no owner; if no `pulumi` works on the stack on "
                f"any machine, remove the lock with {_cancel_command(stack)}"
            )
        if owner and owner.is_alive and owner.was_started_by(mark):
            # The owner's parent command was killed. The kernel has sent SIGINT to Pulumi, which ends soon.
            print_notice(
                f"stack {stack}: the command that started `pulumi` (pid {owner.pid}) was killed; "
                "waiting for `pulumi` to end"
            )
            owner.wait()
        if owner and owner.is_alive:
            raise StackBusy(explain_locks(stack, [owner], mark))
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


def _lock_owner(lock: Path) -> LockOwner | None:
    """Return the owner of a lock; None if the lock is gone, empty or half written."""
    try:
        found = json.loads(lock.read_text(encoding="utf-8"))
        return LockOwner(
            user=found["username"], host=found["hostname"], pid=int(found["pid"]), since=found["timestamp"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def owners_in(error: str) -> list[LockOwner]:
    """Return the lock owners that an error of Pulumi names; empty for other errors."""
    text = error.partition(_LOCKED_MESSAGE)[2]
    return [
        LockOwner(user=each["user"], host=each["host"], pid=int(each["pid"]), since=each["since"])
        for each in _OWNER.finditer(text)
    ]


def explain_locks(stack: str, owners: Sequence[LockOwner], mark: str) -> str:
    """Return a line for each owner of a lock of Pulumi, with what to do."""
    lines = []
    for each in owners:
        who = f"stack {stack}: locked since {each.since} by `pulumi` (pid {each.pid}) of {each.user} on {each.host}"
        if not each.is_here:
            what = f"wait until it ends; if it is certainly dead, remove its lock with {_cancel_command(stack)}"
        elif not each.is_alive:
            what = f"it is dead; remove its lock with {_cancel_command(stack)}, then run the command again"
        elif each.was_started_by(mark):
            what = f"the command that started it was killed; wait until it ends, or stop it with `kill -INT {each.pid}`"
        else:
            what = "it is running; wait until it ends, or press Ctrl-C there, then run the command again"
        lines.append(f"{who}; {what}")
    return "\n".join(lines)


def _cancel_command(stack: str) -> str:
    """Return the commands that remove a lock, as text."""
    return f"{make_command('shell', STACK=stack)} and in it `pulumi cancel --yes --stack {stack}`"


@contextmanager
def stack_lock(stack: str, command: str) -> Iterator[None]:
    """Hold this checkout's lock of a stack in this block. Raises StackBusy if another process holds it.

    `command` names this command in the errors of other processes. The kernel frees the lock of a dead process.
    """
    path = STATE / "locks" / stack
    path.parent.mkdir(parents=True, exist_ok=True)
    # Mode "a" keeps the text that a current holder has written.
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
            what = "wait until it ends, or press Ctrl-C there, then run the command again"
            raise StackBusy(f"stack {stack}: {who}; {what}")
        time.sleep(0.05)


def lock_holder(stack: str) -> str:
    """Return a sentence about the command that holds this checkout's lock of a stack; empty for none."""
    path = STATE / "locks" / stack
    try:
        with path.open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(path, f"stack {stack}") or f"another command is working on stack {stack}"
    except OSError:
        return ""  # No command has used the stack.
    return ""


def _holder(path: Path, subject: str = "it") -> str:
    """Return a description of the lock's holder; empty until the holder has written it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return f"{found['command']} (pid {found['pid']}) has been working on {subject} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
