"""Buckets: runs save, resume and clean up, and stores fail temporarily or permanently.

The store is moto's S3 server. Google's client also uses this server, because Google's XML API is compatible with S3.
For a deletion of a missing object, the proxy answers as Google does. Not yet tested: real clouds.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from tests.trainer.proxy import Fault, Proxy, on_first_requests
from tests.trainer.recipes import Recipe
from tests.trainer.saving import load_newest, save_steps, state_at
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.exit_codes import PREEMPTED, STORAGE_ERROR, StorageError
from trainer.runtime import Runtime
from trainer.storage import Folder


def test_bucket_folder_writes_lists_reads_and_deletes(bucket: str, proxy: Proxy) -> None:
    folder = Folder(bucket).child("run")
    assert folder.names() == []
    folder.write("one", b"1")
    # This content is so large that a client sends several requests.
    content = os.urandom(25 * 2**20)
    with folder.child("inner").writing("large") as file:
        file.write(content)
    assert folder.names() == ["inner", "one"]
    assert folder.read("one") == b"1"
    assert folder.child("inner").read("large") == content
    assert -5 < folder.age("one") < 60
    assert folder.age("none") == float("inf")
    folder.delete("inner")
    folder.delete("none")
    assert folder.names() == ["one"]
    with pytest.raises(StorageError, match=f"{bucket}/run/none cannot be read"):
        folder.read("none")
    assert proxy.requests


def test_bucket_folder_deletion_waits_for_every_file(
    bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(bucket)
    for name in ("a[1].tensors", "b.tensors", "inner/c.tensors"):
        folder.write(f"step/{name}", b"1")
    monkeypatch.setattr("tests.trainer.proxy.SLOW_SECONDS", 0.3)
    proxy.fault = lambda _method, path: Fault.SLOW if path.endswith("tensors") else None
    folder.delete("step")
    assert folder.names() == []


@pytest.mark.parametrize("bucket", ["gs"], indirect=True)
def test_google_folder_deletion_that_is_forbidden_raises(bucket: str, proxy: Proxy) -> None:
    folder = Folder(bucket)
    for name in ("a.tensors", "b.tensors"):
        folder.write(f"step/{name}", b"1")

    def forbid(method: str, path: str) -> Fault | None:
        if method != "DELETE" or not path.endswith("tensors"):
            return None
        # A deletion must not request the folder's own name. If it does, let the answer to that request come first.
        time.sleep(0.3)
        return Fault.FORBIDDEN

    proxy.fault = forbid
    with pytest.raises(StorageError, match=r"/step cannot be deleted: .*403"):
        folder.delete("step")
    assert folder.child("step").names() == ["a.tensors", "b.tensors"]


def test_run_in_a_bucket_saves_resumes_and_cleans_up(bucket: str, recipe: Recipe) -> None:
    flags = ("--epochs=4", "--batch-size=8", "--checkpoint-steps=10", "--keep-checkpoints=2", f"--bucket={bucket}")
    with recipe.started(*flags, "--log-steps=5", processes=2) as first:
        first.wait_for("checkpoint ")
        os.kill(first.rank_pid(1), signal.SIGTERM)
        preempted = first.end(PREEMPTED)
    saved_step = preempted.events("checkpoint")[-1]["step"]
    result = recipe.run(*flags, processes=2)
    assert {event["step"] for event in result.events("resume")} == {saved_step}
    folder = Folder(bucket).child("training")
    assert folder.names() == ["metrics", "owner", "tensorboard"]
    last_two = sorted({int(event["step"]) for event in result.events("checkpoint")})[-2:]
    assert Folder(bucket).child("checkpoints").child("training").names() == [f"step-{step:09d}" for step in last_two]
    lines = []
    for part in folder.child("metrics").child("rank-0").names():
        lines += folder.child("metrics").child("rank-0").read(part).decode().splitlines()
    assert [json.loads(line)["event"] for line in lines].count("done") == 1
    assert folder.child("tensorboard").names()


def test_bucket_checkpoints_beyond_number_and_age_are_deleted(bucket: str, runtime: Runtime) -> None:
    folder = Folder(bucket)
    save_steps(Checkpoints(folder, runtime, keep=2), 1, 2, 3)
    assert folder.names() == ["step-000000002", "step-000000003"]
    save_steps(Checkpoints(folder, runtime, keep=1, keep_hours=1), 4)
    assert folder.names() == [f"step-{step:09d}" for step in (2, 3, 4)]
    time.sleep(3)  # the store's times are in whole seconds
    save_steps(Checkpoints(folder, runtime, keep=1, keep_hours=2 / 3600), 5)
    assert folder.names() == ["step-000000005"]


@pytest.mark.parametrize("fault", [Fault.TOO_MANY, Fault.UNAVAILABLE, Fault.SLOW, Fault.HALF])
def test_store_with_temporary_failures_saves_and_loads_the_weights(
    bucket: str, proxy: Proxy, runtime: Runtime, fault: Fault
) -> None:
    checkpoints = Checkpoints(Folder(bucket), runtime, keep=2)
    proxy.fault = on_first_requests(fault)
    save_steps(checkpoints, 1, 2)
    found, skipped = load_newest(checkpoints)
    assert skipped == []
    assert torch.equal(found.tensors["weights"], state_at(2).tensors["weights"])
    assert proxy.faults() >= 4, proxy.requests


@pytest.mark.long
def test_object_that_arrives_slowly_is_read_with_one_request(bucket: str, proxy: Proxy) -> None:
    folder, content = Folder(bucket), b"0123456789"
    folder.write("slow", content)
    proxy.requests.clear()
    proxy.fault = lambda _method, _path: Fault.TRICKLE
    assert folder.read("slow") == content
    assert len(proxy.requests) == 1, proxy.requests


@pytest.mark.parametrize(
    ("name", "fault"), [("digits", Fault.UNAVAILABLE), ("digits", Fault.FORBIDDEN), ("language", Fault.FORBIDDEN)]
)
def test_store_with_permanent_failure_ends_run(
    bucket: str, proxy: Proxy, both_recipes: dict[str, Recipe], name: str, fault: Fault
) -> None:
    proxy.fault = lambda method, _path: fault if method in ("PUT", "POST") else None
    program, recipe = "tests.trainer.faulty none 0 trainer.storage.RETRY_LIMIT_SECONDS=2", both_recipes[name]
    result = recipe.run("--epochs=1", "--batch-size=8", f"--bucket={bucket}", program=program, code=STORAGE_ERROR)
    assert f"error: {bucket}/training/" in result.output
    assert "cannot be written" in result.output
    assert str(fault.value) in result.output


@pytest.mark.parametrize(("seconds", "tries"), [(5, 3), (180, 1)])
def test_bucket_that_does_not_answer_is_retried_within_the_time_limit(
    seconds: float, tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.accumulate(itertools.repeat(seconds))
    monkeypatch.setattr("trainer.storage.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("trainer.storage.time.sleep", lambda _seconds: None)
    folder, requests = Folder(f"file://{tmp_path}"), []
    folder.is_local = False

    def send() -> None:
        requests.append(1)
        raise OSError("it does not answer")

    with pytest.raises(OSError, match="it does not answer"):
        folder._retry(send)
    assert len(requests) == tries


class EmptyMetadataServer(BaseHTTPRequestHandler):
    """Metadata server of a cloud, for a machine without credentials."""

    def do_GET(self) -> None:
        self.send_error(HTTPStatus.FORBIDDEN)

    do_PUT = do_GET

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("s3://any/run", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("gs://any/run", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_bucket_without_credentials_error_names_the_variables(
    url: str, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyMetadataServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{address}")
        monkeypatch.setenv("GCE_METADATA_HOST", address)
        monkeypatch.setenv("GCE_METADATA_IP", address)
        with pytest.raises(StorageError, match=f"no credentials: set {names}, or give this pod's service account"):
            Folder(url).write("one", b"1")
        server.shutdown()
