"""Locks of a stack: Pulumi's lock in a folder backend, and the lock that a running `trainyard` command holds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import stack_files
from commands.environment import StackBusy
from commands.monitor.cluster import ClusterRemoved, Forbidden, Unreachable
from commands.stack_files import explain_locks, free_locks, owners_in, stack_lock

STACK_MARK = "/checkout:dev"
LOCK_TIME = "2026-11-24T10:00:00Z"
LOCK_FOLDER = ".pulumi/locks/organization/trainyard/dev"
LOCKED_ERROR = f"""error: the stack is currently locked by 2 lock(s). Either wait for the other process(es) to end or \
delete the lock file with `pulumi cancel`.
  s3://bucket/{LOCK_FOLDER}/a.json: created by ann@elsewhere (pid 7) at {LOCK_TIME}
  file:///a%20b/{LOCK_FOLDER}/b.json: created by bob@{socket.gethostname()} (pid 1) at {LOCK_TIME}
"""


@pytest.fixture
def lock_folder(tmp_path: Path) -> Path:
    """Return the folder of Pulumi's locks of the stack."""
    folder = tmp_path / LOCK_FOLDER
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def dead_pid() -> int:
    """Return the pid of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a running program named `pulumi`."""
    (tmp_path / "pulumi").symlink_to("/bin/sleep")
    with subprocess.Popen([str(tmp_path / "pulumi"), "600"]) as process:
        yield process
        process.kill()


def lock(lock_folder: Path, pid: int, host: str = "") -> Path:
    """Write a lock of a process on this machine or on `host`. Return its file."""
    path = lock_folder / f"{pid}.json"
    owner = {"pid": pid, "username": "ann", "hostname": host or socket.gethostname(), "timestamp": LOCK_TIME}
    path.write_text(json.dumps(owner), encoding="utf-8")
    Path(f"{path}.attrs").write_text("{}", encoding="utf-8")
    return path


def free_all(folder: Path, *, is_shared: bool = False) -> list[str]:
    """Call `free_locks` for stack `dev`. Return the messages."""
    return free_locks(folder, "trainyard", "dev", STACK_MARK, is_shared=is_shared)


def test_free_locks_of_a_dead_owner_removes_the_lock(tmp_path: Path, lock_folder: Path, dead_pid: int) -> None:
    lock(lock_folder, dead_pid)
    (message,) = free_all(tmp_path)
    assert f"removed the lock of a `pulumi` (pid {dead_pid}, since {LOCK_TIME}) that is dead" in message
    assert list(lock_folder.iterdir()) == []


def test_free_locks_with_a_pid_reused_by_another_program_removes_the_lock(tmp_path: Path, lock_folder: Path) -> None:
    lock(lock_folder, os.getpid())
    assert len(free_all(tmp_path)) == 1


def test_free_locks_of_a_running_owner_raises_and_keeps_the_lock(
    tmp_path: Path, lock_folder: Path, engine: subprocess.Popen[bytes]
) -> None:
    path = lock(lock_folder, engine.pid)
    with pytest.raises(StackBusy, match="it is running; wait until it ends, or press Ctrl-C there") as caught:
        free_all(tmp_path)
    assert "cancel" not in str(caught.value)
    assert path.exists()


def test_free_locks_of_an_owner_on_another_machine_raises_and_keeps_the_lock(
    tmp_path: Path, lock_folder: Path, dead_pid: int
) -> None:
    path = lock(lock_folder, dead_pid, host="elsewhere")
    with pytest.raises(StackBusy, match="of ann on elsewhere; wait until it ends; if it is certainly dead"):
        free_all(tmp_path)
    assert path.exists()


@pytest.mark.parametrize("text", ["", '{"pid": 1, "user', "[]", '{"pid": 1}'])
def test_free_locks_removes_a_damaged_lock_except_on_a_shared_backend(
    tmp_path: Path, lock_folder: Path, text: str
) -> None:
    path = lock_folder / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StackBusy, match="is truncated and names no owner; if no `pulumi` works on the stack"):
        free_all(tmp_path, is_shared=True)
    assert len(free_all(tmp_path)) == 1
    assert not path.exists()


def test_free_locks_keeps_the_locks_of_other_projects(tmp_path: Path, lock_folder: Path, dead_pid: int) -> None:
    path = lock(lock_folder, dead_pid)
    assert free_locks(tmp_path, "other", "dev", STACK_MARK, is_shared=False) == []
    assert path.exists()


def test_owners_in_a_pulumi_error_returns_every_owner() -> None:
    first, second = owners_in(LOCKED_ERROR)
    assert (first.user, first.host, first.pid, first.since) == ("ann", "elsewhere", 7, LOCK_TIME)
    assert (first.is_here, second.is_here) == (False, True)
    assert owners_in("error: no stack named 'dev' found") == []


def test_explain_locks_of_a_dead_owner_on_a_shared_backend_names_the_command() -> None:
    _, dead = owners_in(LOCKED_ERROR)
    assert "it is dead; remove its lock with `make shell STACK=dev`" in explain_locks("dev", [dead], STACK_MARK)


HOLDER_PROGRAM = """
import sys, time
from pathlib import Path
from commands import stack_files
stack_files.STATE = Path(sys.argv[1])
with stack_files.stack_lock("dev", "`make up`"):
    print("held", flush=True)
    time.sleep(600)
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lock of this checkout in the test's folder."""
    monkeypatch.setattr(stack_files, "STATE", tmp_path)


def test_stack_lock_held_by_another_process_names_its_holder(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER_PROGRAM, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        expected = rf"stack dev: `make up` \(pid {holder.pid}\) has been working on it since 20.*; wait until it ends"
        with pytest.raises(StackBusy, match=expected), stack_lock("dev", "make down"):
            pass
        with stack_lock("other", "make down"):
            pass
        holder.kill()
        holder.wait()
        # The dead holder no longer has the lock.
        with stack_lock("dev", "make down"):
            pass


def test_stack_lock_with_an_unreadable_holder_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_files, "READ_SECONDS", 0.0)
    with stack_lock("dev", "make up"):
        (tmp_path / "locks" / "dev").write_text('{"command": "ma', encoding="utf-8")
        with pytest.raises(StackBusy, match="another command is working on it"), stack_lock("dev", "make down"):
            pass


def test_stack_lock_writes_the_pid_of_its_holder_and_clears_the_file_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "locks" / "dev"
    with stack_lock("dev", "make up"):
        assert f'"pid": {os.getpid()}' in file.read_text(encoding="utf-8")
    assert file.read_text(encoding="utf-8") == ""


CONNECTION_REFUSED = "the API server does not answer: [Errno 111] Connection refused"
CLUSTER_REMOVED = "the stack is partly down: its cluster was removed; `make up` starts it again"


@pytest.mark.parametrize("error", [Unreachable(CONNECTION_REFUSED), ClusterRemoved(CLUSTER_REMOVED)])
def test_report_of_an_unreachable_cluster_while_down_runs_names_down(
    error: Unreachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK", "dev")
    before = error.report()
    with stack_lock("dev", "`make down STACK=dev`"):
        during = error.report()
    assert f"`make down STACK=dev` (pid {os.getpid()}) has been working on stack dev since " in during
    assert during.endswith("; wait until it ends")
    assert "starts it again" not in during
    assert before == error.report()
    assert "`make up" in before


def test_report_of_an_unreachable_cluster_says_how_to_start_it() -> None:
    assert Unreachable(CONNECTION_REFUSED).report() == (
        f"the cluster cannot be queried: {CONNECTION_REFUSED}; `make up` starts it again if it is on this machine, "
        "`make down` removes the stack"
    )


def test_report_of_a_missing_permission_is_its_message() -> None:
    assert Forbidden("the API server answers 403").report() == "the API server answers 403"
