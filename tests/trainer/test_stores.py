"""Buckets: runs save, resume and clean up in them, and stores that fail for a while or for good.

The store is moto's S3 server. Google's client speaks to it, too, for both have the same XML API; what S3 has not, the
deletion in a batch, the proxy translates. Neither has been tried here against the clouds themselves.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch

from setup.stores import s3_server
from tests.stores.proxy import Fault, Proxy, at_first
from tests.trainer.processes import run, started
from tests.trainer.test_checkpoint import newest, save, saved
from trainer.checkpoint import Checkpoints
from trainer.config import ImagenetConfig, parse
from trainer.exit_codes import DONE, PREEMPTED, STORAGE_ERROR, DataError, StorageError
from trainer.image_streams import streamed
from trainer.images import FolderImages, Place
from trainer.made_images import imagenet
from trainer.runtime import Runtime, start_runtime
from trainer.sampler import EpochSampler
from trainer.storage import Folder
from trainer.tensor_files import MANIFEST

NUMBERS = count()


@pytest.fixture(scope="module")
def store() -> Iterator[int]:
    """Port of an S3 server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server = subprocess.Popen(
        [str(s3_server()), "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def proxy(store: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the store, which the clients of both clouds are told of."""
    with Proxy(store) as found:
        account = tmp_path / "account.json"
        keys = ("client_email", "private_key", "private_key_id")
        account.write_text(json.dumps({"gcs_base_url": found.url, "disable_oauth": True} | dict.fromkeys(keys, "")))
        for name, value in {
            "GOOGLE_SERVICE_ACCOUNT": str(account),
            "AWS_ENDPOINT_URL": found.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, proxy: Proxy) -> str:
    """URL of a new bucket."""
    name = f"bucket-{next(NUMBERS)}"
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"))
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    proxy.requests.clear()
    return f"{request.param}://{name}"


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """This process as the only rank."""
    return start_runtime(parse(["digits", "--device=cpu"]))


def test_a_folder_in_a_bucket_is_a_folder(bucket: str, proxy: Proxy) -> None:
    folder = Folder(bucket).child("run")
    assert folder.names() == []
    folder.write("one", b"1")
    # More than a client sends at once.
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


def test_a_run_saves_resumes_and_cleans_up_in_a_bucket(bucket: str, digits: Path) -> None:
    flags = ("--epochs=2", "--batch-size=8", "--checkpoint-steps=10", "--keep-checkpoints=2", f"--bucket={bucket}")
    with started(*flags, "--log-steps=5", processes=2, data=digits, recipe="digits") as first:
        first.wait_for("checkpoint ")
        os.kill(first.rank_process(1), signal.SIGTERM)
        told = first.end()
    assert told.codes == [PREEMPTED], told.output
    left_at = told.events("checkpoint")[-1]["step"]
    ended = run(*flags, data=digits, recipe="digits", processes=2)
    assert ended.codes == [DONE], ended.output
    assert {event["step"] for event in ended.events("resume")} == {left_at}
    folder = Folder(bucket).child("training")
    assert folder.names() == ["checkpoints", "metrics", "tensorboard"]
    last = sorted({int(event["step"]) for event in ended.events("checkpoint")})[-2:]
    assert folder.child("checkpoints").names() == [f"step-{step:09d}" for step in last]
    lines = []
    for part in folder.child("metrics").child("rank-0").names():
        lines += folder.child("metrics").child("rank-0").read(part).decode().splitlines()
    assert [json.loads(line)["event"] for line in lines].count("done") == 1
    assert folder.child("tensorboard").names()


def test_every_image_is_read_once_an_epoch_by_one_rank(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    imagenet(tmp_path, classes=3, train=7, tests=2, side=32)
    for path in tmp_path.rglob("*.JPEG"):
        Folder(bucket).write(str(path.relative_to(tmp_path)), path.read_bytes())
    proxy.requests.clear()

    def load(folder: str) -> FolderImages:
        config = ImagenetConfig(fake_data=False, data_dir=folder, image_size=24, batch_size=4, cache_dir=str(tmp_path))
        return FolderImages(config, torch.device("cpu"), Place(builds=True, alive=lambda: None))

    ranks, whole = [load(bucket) for _ in range(2)], load(str(tmp_path))
    assert (whole.num_samples, whole.num_tests, whole.classes) == (21, 6, 3)
    assert (ranks[0].num_samples, ranks[0].num_tests, ranks[0].classes) == (21, 6, 3)
    two = [EpochSampler(21, rank=rank, world=2, batch_size=4, seed=3) for rank in range(2)]
    one = EpochSampler(21, rank=0, world=1, batch_size=8, seed=3)
    for rank, sampler in zip(ranks, two, strict=True):
        rank.follow(sampler)
    for epoch in (1, 2):
        while one.steps_left:
            parts = [rank.batch(sampler.next(), world=2) for rank, sampler in zip(ranks, two, strict=True)]
            expected = whole.batch(one.next(), world=1)
            assert torch.equal(torch.cat([part.images for part in parts]), expected.images)
            assert torch.equal(torch.cat([part.labels for part in parts]), expected.labels)
        asked = (unquote(path) for method, path, _ in proxy.requests if method == "GET")
        reads = Counter(path for path in asked if path.endswith(".JPEG"))
        assert len(reads) == 21
        assert set(reads.values()) == {epoch}
        for sampler in (one, *two):
            sampler.next_epoch()


def test_what_is_no_image_in_a_bucket_is_named(bucket: str) -> None:
    for split in ("train", "val"):
        Folder(bucket).write(f"{split}/n0/one.JPEG", b"<html>404 Not Found</html>")
    train, _, _ = streamed(bucket, 24)
    with pytest.raises(DataError, match=f"{bucket}/train/n0/one.JPEG is no image"):
        list(train.take(np.array([0])))
    Folder(bucket).write("val/n1/two.JPEG", b"")
    with pytest.raises(DataError, match="no class 'n1' in the training set"):
        streamed(bucket, 24)
    with pytest.raises(DataError, match=f"{bucket}/none has no images of train"):
        streamed(f"{bucket}/none", 24)


def test_checkpoints_are_kept_by_number_and_age(bucket: str, runtime: Runtime) -> None:
    folder = Folder(bucket)
    save(Checkpoints(folder, runtime, keep=2), 1, 2, 3)
    assert folder.names() == ["step-000000002", "step-000000003"]
    save(Checkpoints(folder, runtime, keep=1, keep_hours=1), 4)
    assert folder.names() == [f"step-{step:09d}" for step in (2, 3, 4)]
    time.sleep(3)  # a store's clock has whole seconds
    save(Checkpoints(folder, runtime, keep=1, keep_hours=2 / 3600), 5)
    assert folder.names() == ["step-000000005"]


def test_what_is_broken_in_a_bucket_is_named_and_the_one_before_is_used(bucket: str, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(bucket), runtime, keep=3)
    save(checkpoints, 1, 2, 3)
    checkpoints.folder.child("step-000000003").delete(MANIFEST)
    tensors = checkpoints.folder.child("step-000000002")
    tensors.write("rank-0.tensors", tensors.read("rank-0.tensors")[:-1])
    found, skipped = newest(checkpoints)
    assert found
    assert found.facts["step"] == 1
    assert [name for name, _ in skipped] == ["step-000000003", "step-000000002"]
    assert "not finished" in skipped[0][1]
    assert "too short" in skipped[1][1]


@pytest.mark.parametrize("fault", [Fault.TOO_MANY, Fault.UNAVAILABLE, Fault.SLOW, Fault.HALF])
def test_a_store_that_fails_for_a_while_loses_nothing(
    bucket: str, proxy: Proxy, runtime: Runtime, fault: Fault
) -> None:
    checkpoints = Checkpoints(Folder(bucket), runtime, keep=2)
    proxy.fault = at_first(fault)
    save(checkpoints, 1, 2)
    found, skipped = newest(checkpoints)
    assert found
    assert skipped == []
    assert torch.equal(found.tensors["weights"], saved(2).tensors["weights"])
    assert proxy.faults() >= 4, proxy.requests


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.FORBIDDEN])
def test_a_store_that_fails_for_good_ends_the_run_and_is_named(
    bucket: str, proxy: Proxy, digits: Path, fault: Fault
) -> None:
    proxy.fault = lambda method, _path: fault if method in ("PUT", "POST") else None
    began = time.monotonic()
    ended = run("--epochs=1", "--batch-size=8", f"--bucket={bucket}", data=digits, recipe="digits")
    assert ended.codes == [STORAGE_ERROR], ended.output
    assert f"error: {bucket}/training/" in ended.output
    assert "cannot be written" in ended.output
    assert str(fault.value) in ended.output
    assert time.monotonic() - began < 240
