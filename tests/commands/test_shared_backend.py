"""Locks of a stack in a bucket that other machines share: they are reported and never removed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from setup.stores import s3_server
from tests.commands.slow_stack import LIMIT_SECONDS, Slow
from tests.end_to_end.conftest import is_pulumi_in, processes

LOCKS = ".pulumi/locks/organization/slow/dev"
SIGNATURE = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def request(url: str, method: str = "GET", body: bytes | None = None) -> str:
    headers = {"Authorization": SIGNATURE, "Content-Type": "application/octet-stream"}
    with urlopen(Request(url, body, headers, method=method), timeout=10) as answer:
        found: bytes = answer.read()
    return found.decode()


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Yield the address of an S3 server with the bucket `state`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [str(s3_server()), "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                request(f"http://127.0.0.1:{port}/state", "PUT")
                break
            except URLError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        server.kill()


@pytest.fixture
def slow(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """Yield the stack, in the bucket under the test's prefix."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    found = Slow(
        tmp_path, f"s3://state?endpoint={store}&s3ForcePathStyle=true&region=us-east-1&prefix={tmp_path.name}/"
    )
    found.write()
    yield found
    found.close()


def has_lock(slow: Slow, store: str) -> bool:
    return LOCKS in request(f"{store}/state?list-type=2&prefix={slow.folder.name}/.pulumi/locks")


def test_up_locked_by_another_machine_fails_with_owner(slow: Slow, store: str) -> None:
    owner = {"pid": 7, "username": "ann", "hostname": "elsewhere", "timestamp": "2026-11-24T10:00:00Z"}
    url = f"{store}/state/{slow.folder.name}/{LOCKS}/a.json"
    request(url, "PUT", json.dumps(owner).encode())
    said = slow.end(slow.start(), 1)
    assert "locked since 2026-11-24T10:00:00Z by `pulumi` (pid 7) of ann on elsewhere; wait until it ends" in said
    assert has_lock(slow, store)


def test_up_interrupted_removes_its_lock(slow: Slow, store: str) -> None:
    process = slow.start_and_wait()
    process.send_signal(signal.SIGINT)
    slow.until_said(process, "still waiting for Pulumi to end")
    (slow.folder / "end").touch()
    assert "make up: stopped" in slow.end(process, 130)
    assert not has_lock(slow, store)


def test_up_locked_by_dead_process_fails_with_pid_and_cancel_command(slow: Slow, store: str) -> None:
    process = slow.start_and_wait()
    engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
    os.kill(engine, signal.SIGKILL)
    slow.end(process, 1)
    said = slow.end(slow.start(), 1)
    assert f"(pid {engine})" in said
    assert "it is dead; remove its lock with `make shell STACK=dev` and in it `pulumi cancel" in said
    assert has_lock(slow, store)
