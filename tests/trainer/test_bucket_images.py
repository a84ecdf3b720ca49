"""Images in a bucket, in every layout. One rank reads each image: once an epoch, or once a run with a cache."""

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
    """Copy all files below a folder to a bucket."""
    folder = Folder(url)
    for path in sorted(path for path in local.rglob("*") if path.is_file()):
        folder.write(str(path.relative_to(local)), path.read_bytes())


def write_set(layout: str, bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    """Write a set of images to `data/` of the folder and of the bucket. Then forget the requests of the upload."""
    LAYOUTS[layout](tmp_path / "data")
    upload(tmp_path / "data", f"{bucket}/data")
    proxy.requests.clear()


def train(url: str, folder: Path, *flags: str, code: int = DONE) -> RunResult:
    """Train two ranks for EPOCHS epochs on the images at `url`, with the cache in `folder`."""
    where = (f"--data-dir={url}", f"--cache-dir={folder}/cache", f"--epochs={EPOCHS}", "--bucket=")
    return run(*MODEL, *where, *flags, data=folder, recipe="imagenet", processes=2, code=code)


def read_counts(proxy: Proxy) -> Counter[str]:
    """Return the number of GET requests by image or shard."""
    paths = [unquote(urlsplit(path).path) for method, path, _ in proxy.requests if method == "GET"]
    return Counter(path for path in paths if path.endswith((".JPEG", ".tar")))


def test_bucket_images_on_two_ranks_equal_disk_images(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    imagenet(tmp_path, classes=3, train=7, tests=2, side=32)
    upload(tmp_path, bucket)
    proxy.requests.clear()

    in_bucket = [load_images(bucket, epochs=EPOCHS, stream=True) for _ in range(2)]
    on_disk = load_images(tmp_path, epochs=EPOCHS, stream=True)
    assert (on_disk.num_samples, on_disk.num_tests, on_disk.classes) == (21, 6, 3)
    assert (in_bucket[0].num_samples, in_bucket[0].num_tests, in_bucket[0].classes) == (21, 6, 3)
    two_ranks = [EpochSampler(21, rank=rank, world=2, batch_size=4, seed=3) for rank in range(2)]
    one_rank = EpochSampler(21, rank=0, world=1, batch_size=8, seed=3)
    for images, sampler in zip(in_bucket, two_ranks, strict=True):
        images.follow(sampler)
    for _ in range(EPOCHS):
        while one_rank.steps_left:
            parts = [
                images.batch(sampler.next(), world=2) for images, sampler in zip(in_bucket, two_ranks, strict=True)
            ]
            expected = on_disk.batch(one_rank.next(), world=1)
            assert torch.equal(torch.cat([part.inputs for part in parts]), expected.inputs)
            assert torch.equal(torch.cat([part.labels for part in parts]), expected.labels)
        for sampler in (one_rank, *two_ranks):
            sampler.next_epoch()
    assert len(read_counts(proxy)) == 21
    assert set(read_counts(proxy).values()) == {EPOCHS}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bucket_layouts_have_the_same_images_as_a_disk(layout: str, bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set(layout, bucket, proxy, tmp_path)
    disk, remote = Folder(f"{tmp_path}/data"), Folder(f"{bucket}/data")
    for split in ("train", "val"):
        in_bucket, classes = find_images(remote, split, ONLY_RANK)
        on_disk, classes_on_disk = find_images(disk, split, ONLY_RANK)
        assert classes == classes_on_disk == CLASSES
        places = [(image.file, image.start, image.label) for image in in_bucket]
        assert places == [(image.file, image.start, image.label) for image in on_disk]
        last, expected = in_bucket[-1], on_disk[-1]
        content = remote.read_part(last.file, last.start, last.size)
        assert content == disk.read_part(expected.file, expected.start, expected.size)


def test_search_in_a_bucket_sends_heartbeats(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    heartbeats: list[bool] = []
    files = Folder(f"{bucket}/data").files("train", heartbeat=lambda: heartbeats.append(True))
    assert sorted(files) == sorted(Folder(f"{tmp_path}/data").files("train"))
    assert len(heartbeats) > CLASSES


def test_streamed_bucket_images_are_read_once_an_epoch(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    train(f"{bucket}/data", tmp_path, "--stream")
    counts = read_counts(proxy)
    assert len(counts) == CLASSES * (TRAIN + TESTS)
    assert set(counts.values()) == {EPOCHS}, counts
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_cached_bucket_images_are_read_once(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    train(f"{bucket}/data", tmp_path)
    assert set(read_counts(proxy).values()) == {1}


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_bucket_shards_are_each_listed_by_one_rank(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("webdataset", bucket, proxy, tmp_path)
    train(f"{bucket}/data", tmp_path, "--stream")
    # A rank reads each shard once to find its images. Each epoch then reads each image once.
    expected = {"train-000000.tar": 20, "train-000001.tar": 20, "train-000002.tar": 8, "val-000000.tar": 12}
    found = {path.rpartition("/")[2]: count for path, count in read_counts(proxy).items()}
    assert found == {name: 1 + EPOCHS * images for name, images in expected.items()}


def test_bucket_with_temporary_failures_and_broken_image_trains(bucket: str, proxy: Proxy, tmp_path: Path) -> None:
    write_set("imagenet", bucket, proxy, tmp_path)
    broken = next((tmp_path / "data" / "train").rglob("*.JPEG")).relative_to(tmp_path)
    Folder(bucket).write(str(broken), b"no image")
    proxy.fault = on_first_requests(Fault.UNAVAILABLE)
    result = train(f"{bucket}/data", tmp_path, "--stream")
    assert proxy.faults() > CLASSES * TRAIN
    # A rank reports a broken image once, after the first epoch in which it reads the image. Each rank may read it.
    reported = [event["sample"].partition(":_")[0] for event in result.events("broken")]
    assert 1 <= len(reported) <= 2
    assert set(reported) == {f"{bucket}/{broken}"}


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_bucket_without_images_is_rejected(bucket: str, tmp_path: Path) -> None:
    result = train(f"{bucket}/data", tmp_path, "--stream", code=DATA_ERROR)
    assert f"{bucket}/data has no images of train" in result.output
