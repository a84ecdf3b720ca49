"""Images in a bucket: every layout is found, and each image is read once an epoch by one rank."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch

from images.trainer.made_images import imagenet
from tests.trainer.image_sets import CLASSES, ONLY_RANK, layouts, load_images
from tests.trainer.processes import RunResult, run
from tests.trainer.proxy import Fault, Proxy, on_first_requests
from trainer.data.image_files import find_images
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import DATA_ERROR, DONE
from trainer.storage import Folder

TRAIN, TESTS, EPOCHS = 16, 4, 2
LAYOUTS = layouts(TRAIN, TESTS, per_shard=20)
MODEL = ("--no-fake-data", "--arch=resnet18", "--image-size=32", f"--num-classes={CLASSES}", "--batch-size=8")


def upload(local: Path, url: str) -> None:
    folder = Folder(url)
    for path in sorted(path for path in local.rglob("*") if path.is_file()):
        folder.write(str(path.relative_to(local)), path.read_bytes())


def write_set(layout: str, bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    """Write a set of images to `data/` of the folder and of the bucket, and forget the requests."""
    LAYOUTS[layout](tmp_path / "data")
    upload(tmp_path / "data", f"{bucket}/data")
    proxy.requests.clear()


def train(url: str, folder: Path, *flags: str, code: int = DONE) -> RunResult:
    where = (f"--data-dir={url}", f"--cache-dir={folder}/cache", f"--epochs={EPOCHS}", "--bucket=")
    return run(*MODEL, *where, *flags, data=folder, recipe="imagenet", processes=2, code=code)


def reads(proxy: Proxy) -> Counter[str]:
    """Return the number of requests for each image or shard."""
    paths = [unquote(urlsplit(path).path) for method, path, _ in proxy.requests if method == "GET"]
    return Counter(path for path in paths if path.endswith((".JPEG", ".tar")))


def test_bucket_images_on_two_ranks_equal_disk_images(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    imagenet(tmp_path, classes=3, train=7, tests=2, side=32)
    upload(tmp_path, bucket)
    proxy.requests.clear()

    ranks = [load_images(bucket, epochs=EPOCHS, stream=True) for _ in range(2)]
    whole = load_images(tmp_path, epochs=EPOCHS, stream=True)
    assert (whole.num_samples, whole.num_tests, whole.classes) == (21, 6, 3)
    assert (ranks[0].num_samples, ranks[0].num_tests, ranks[0].classes) == (21, 6, 3)
    two = [EpochSampler(21, rank=rank, world=2, batch_size=4, seed=3) for rank in range(2)]
    one = EpochSampler(21, rank=0, world=1, batch_size=8, seed=3)
    for rank, sampler in zip(ranks, two, strict=True):
        rank.follow(sampler)
    for _ in range(EPOCHS):
        while one.steps_left:
            parts = [rank.batch(sampler.next(), world=2) for rank, sampler in zip(ranks, two, strict=True)]
            expected = whole.batch(one.next(), world=1)
            assert torch.equal(torch.cat([part.inputs for part in parts]), expected.inputs)
            assert torch.equal(torch.cat([part.labels for part in parts]), expected.labels)
        for sampler in (one, *two):
            sampler.next_epoch()
    assert len(reads(proxy)) == 21
    assert set(reads(proxy).values()) == {EPOCHS}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bucket_layouts_give_the_same_images_as_a_disk(layout: str, bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set(layout, bucket, proxy, tmp_path)
    disk, remote = Folder(f"{tmp_path}/data"), Folder(f"{bucket}/data")
    for split in ("train", "val"):
        found, expected = find_images(remote, split, ONLY_RANK), find_images(disk, split, ONLY_RANK)
        assert found[1] == expected[1] == CLASSES
        assert [(one.file, one.start, one.label) for one in found[0]] == [
            (one.file, one.start, one.label) for one in expected[0]
        ]
        in_bucket, on_disk = found[0][-1], expected[0][-1]
        assert remote.read_part(in_bucket.file, in_bucket.start, in_bucket.size) == disk.read_part(
            on_disk.file, on_disk.start, on_disk.size
        )


def test_bucket_images_are_read_once_an_epoch(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    train(f"{bucket}/data", tmp_path, "--stream")
    found = reads(proxy)
    assert len(found) == CLASSES * (TRAIN + TESTS)
    assert set(found.values()) == {EPOCHS}, found
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_bucket_images_are_decoded_once_into_the_cache(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    train(f"{bucket}/data", tmp_path)
    assert set(reads(proxy).values()) == {1}


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_bucket_shards_are_each_listed_by_one_rank(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("webdataset", bucket, proxy, tmp_path)
    train(f"{bucket}/data", tmp_path, "--stream")
    # One rank reads each shard once to find its images.
    expected = {"train-000000.tar": 20, "train-000001.tar": 20, "train-000002.tar": 8, "val-000000.tar": 12}
    found = {path.rpartition("/")[2]: count for path, count in reads(proxy).items()}
    assert found == {name: 1 + EPOCHS * images for name, images in expected.items()}


def test_bucket_with_temporary_failures_and_broken_image_trains(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    broken = next((tmp_path / "data" / "train").rglob("*.JPEG")).relative_to(tmp_path)
    Folder(bucket).write(str(broken), b"no image")
    proxy.fault = on_first_requests(Fault.UNAVAILABLE)
    result = train(f"{bucket}/data", tmp_path, "--stream")
    assert proxy.faults() > CLASSES * TRAIN
    # A rank reports the broken image once, at the end of the epoch in which the rank read it.
    named = [event["sample"].partition(":_")[0] for event in result.events("broken")]
    assert 1 <= len(named) <= 2
    assert set(named) == {f"{bucket}/{broken}"}


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_bucket_without_images_is_rejected(bucket: str, tmp_path: Path) -> None:
    result = train(f"{bucket}/data", tmp_path, "--stream", code=DATA_ERROR)
    assert f"{bucket}/data has no images of train" in result.output
