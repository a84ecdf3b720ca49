"""Locks of a stack in a bucket that other machines share: a command removes only its own lock, and reports others."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from simulation.object_store import AUTHORIZATION, SETTINGS_KEY, running
from tests.commands.slow_stack import SlowStack
from tests.end_to_end.conftest import is_pulumi_in, processes

LOCKS = ".pulumi/locks/organization/slow/dev"


def request(url: str, method: str = "GET", body: bytes | None = None) -> str:
    """Return the response of the object store."""
    headers = {"Authorization": AUTHORIZATION, "Content-Type": "application/octet-stream"}
    with urlopen(Request(url, body, headers, method=method), timeout=10) as answer:
        found: bytes = answer.read()
    return found.decode()


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Yield the address of an S3 server with the bucket `state`."""
    with running("s3") as server:
        address = f"http://127.0.0.1:{server[SETTINGS_KEY]['port']}"
        request(f"{address}/state", "PUT")
        yield address


@pytest.fixture
def slow(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStack]:
    """Yield a slow stack whose state is in the bucket, below a prefix of this test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    found = SlowStack(
        tmp_path, f"s3://state?endpoint={store}&s3ForcePathStyle=true&region=us-east-1&prefix={tmp_path.name}/"
    )
    found.write()
    yield found
    found.close()


def has_lock(slow: SlowStack, store: str) -> bool:
    """Return True if the bucket has a lock of the stack."""
    return LOCKS in request(f"{store}/state?list-type=2&prefix={slow.folder.name}/.pulumi/locks")


def test_up_locked_by_another_machine_fails_with_owner(slow: SlowStack, store: str) -> None:
    owner = {"pid": 7, "username": "ann", "hostname": "elsewhere", "timestamp": "2026-11-24T10:00:00Z"}
    url = f"{store}/state/{slow.folder.name}/{LOCKS}/a.json"
    request(url, "PUT", json.dumps(owner).encode())
    output = slow.finish(slow.start(), 1)
    assert "locked since 2026-11-24T10:00:00Z by `pulumi` (pid 7) of ann on elsewhere; wait until it ends" in output
    assert has_lock(slow, store)


def test_up_interrupted_removes_its_lock(slow: SlowStack, store: str) -> None:
    process = slow.start_and_wait()
    process.send_signal(signal.SIGINT)
    slow.wait_for_output(process, "still waiting for Pulumi to end")
    (slow.folder / "end").touch()
    assert "make up: stopped" in slow.finish(process, 130)
    assert not has_lock(slow, store)


def test_up_locked_by_dead_process_fails_with_pid_and_cancel_command(slow: SlowStack, store: str) -> None:
    process = slow.start_and_wait()
    engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
    os.kill(engine, signal.SIGKILL)
    slow.finish(process, 1)
    output = slow.finish(slow.start(), 1)
    assert f"(pid {engine})" in output
    assert "it is dead; remove its lock with `make shell STACK=dev` and in it `pulumi cancel" in output
    assert has_lock(slow, store)
