"""Sets of images: every layout has the same samples, each once an epoch, and broken images are reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from images.trainer.made_images import imagenet, jpegs, tiny_imagenet
from tests.trainer.image_sets import CLASSES, LAYOUTS, ONLY_RANK, SIDE, TESTS, TRAIN, ReaderRank, load_images
from tests.trainer.processes import RunResult, run
from trainer.data.datasets import Data
from trainer.data.image_files import find_images
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import DataError
from trainer.loop import report_unreadable
from trainer.reporter import Reporter
from trainer.rules import MAX_COUNT, MAX_SEED
from trainer.storage import Folder


@pytest.fixture(params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a set of images. A test that uses this fixture runs once with each layout."""
    LAYOUTS[request.param](tmp_path / "data")
    return tmp_path / "data"


def test_layouts_give_the_same_images(folder: Path, tmp_path: Path) -> None:
    source = Folder(str(folder))
    for split, count, seed in (("train", TRAIN, 0), ("val", TESTS, 1)):
        found, classes = find_images(source, split, ONLY_RANK)
        assert classes == CLASSES
        expected = Counter((label, content) for label, content in jpegs(CLASSES, count, SIDE, seed))
        read = ((image.label, source.read_part(image.file, image.start, image.size)) for image in found)
        assert Counter(read) == expected
    data = load_images(folder, tmp_path / "cache")
    assert (data.classes, data.num_samples, data.num_tests) == (CLASSES, CLASSES * TRAIN, CLASSES * TESTS)
    assert data.broken == []


def test_num_classes_that_differs_from_the_set_is_rejected(folder: Path, tmp_path: Path) -> None:
    assert load_images(folder, tmp_path / "cache", num_classes=CLASSES).classes == CLASSES
    with pytest.raises(DataError, match=f"num_classes = {CLASSES + 1}: must be {CLASSES}, the number of classes in"):
        load_images(folder, tmp_path / "cache", num_classes=CLASSES + 1)


def test_crops_on_two_ranks_equal_crops_on_one_rank(folder: Path, tmp_path: Path) -> None:
    data = load_images(folder, tmp_path / "cache")

    def epoch(world: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        samplers = [
            EpochSampler(data.num_samples, rank=rank, world=world, batch_size=4 // world, seed=3)
            for rank in range(world)
        ]
        steps = []
        while samplers[0].steps_left:
            parts = [data.batch(sampler.next(), world=world) for sampler in samplers]
            steps.append((torch.cat([part.inputs for part in parts]), torch.cat([part.labels for part in parts])))
        return steps

    one, two = epoch(1), epoch(2)
    assert sum(len(labels) for _, labels in one) == data.num_samples
    assert Counter(torch.cat([labels for _, labels in one]).tolist()) == dict.fromkeys(range(CLASSES), TRAIN)
    for (inputs, labels), (inputs_of_two, labels_of_two) in zip(one, two, strict=True):
        assert torch.equal(inputs, inputs_of_two)
        assert torch.equal(labels, labels_of_two)
    assert one[0][0].shape == (4, 3, 24, 24)
    assert one[0][0].is_contiguous(memory_format=torch.channels_last)


def test_largest_seed_and_epoch_give_finite_crops(tmp_path: Path) -> None:
    LAYOUTS["imagenet"](tmp_path / "data")
    data = load_images(tmp_path / "data", tmp_path / "cache", seed=MAX_SEED)
    sampler = EpochSampler(data.num_samples, rank=0, world=1, batch_size=4, seed=MAX_SEED)
    sampler.epoch = MAX_COUNT
    assert data.batch(sampler.next(), world=1).inputs.isfinite().all()


def test_prefetched_crops_equal_requested_crops(folder: Path, tmp_path: Path) -> None:
    plain, prefetching = load_images(folder, tmp_path / "cache"), load_images(folder, tmp_path / "cache")
    first = EpochSampler(plain.num_samples, rank=0, world=1, batch_size=4, seed=0)
    second = EpochSampler(plain.num_samples, rank=0, world=1, batch_size=4, seed=0)
    prefetching.follow(second)
    for _ in range(2):
        while first.steps_left:
            one, other = plain.batch(first.next(), world=1), prefetching.batch(second.next(), world=1)
            assert torch.equal(one.inputs, other.inputs)
            if second.position == 12:
                # Simulate a resumed run, whose next crops were not prefetched.
                for sampler in (first, second):
                    sampler.load_state({"epoch": first.epoch, "position": 16, "num_samples": plain.num_samples})
        first.next_epoch()
        second.next_epoch()


def test_four_ranks_evaluate_each_test_image_once(folder: Path, tmp_path: Path) -> None:
    data = load_images(folder, tmp_path / "cache")
    labels = [
        label for rank in range(4) for _, part in data.test_batches(rank=rank, world=4) for label in part.tolist()
    ]
    assert Counter(labels) == dict.fromkeys(range(CLASSES), TESTS)


def test_streamed_images_equal_cached_images(folder: Path, tmp_path: Path) -> None:
    streamed, cached = (load_images(folder, tmp_path / "cache", stream=stream) for stream in (True, False))
    assert streamed.num_samples == cached.num_samples
    samplers = [EpochSampler(cached.num_samples, rank=0, world=1, batch_size=4, seed=0) for _ in range(2)]
    while samplers[0].steps_left:
        one, other = (
            data.batch(sampler.next(), world=1) for data, sampler in zip((streamed, cached), samplers, strict=True)
        )
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)
    for (images, _), (others, _) in zip(
        streamed.test_batches(rank=0, world=1), cached.test_batches(rank=0, world=1), strict=True
    ):
        assert torch.equal(images, others)


DEFECTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "text": lambda _content: b"<html>404 Not Found</html>",
    "header only": lambda content: content[:20],
    "other format": lambda _content: b"GIF89a" + bytes(10),
}
"""Name of a defect -> function that returns the damaged content of an image."""


@pytest.fixture
def broken(tmp_path: Path) -> list[Path]:
    """Write 90 training images to `data/`. Damage one image for each defect, and return these images' paths."""
    folder = tmp_path / "data"
    imagenet(folder, classes=CLASSES, train=30, tests=TESTS, side=SIDE)
    paths = sorted((folder / "train").rglob("*.JPEG"))[:: len(DEFECTS)][: len(DEFECTS)]
    for path, damage in zip(paths, DEFECTS.values(), strict=True):
        path.write_bytes(damage(path.read_bytes()))
    return paths


def test_broken_images_are_counted_and_reported(broken: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    data = load_images(folder, tmp_path / "cache")
    assert len(data.broken) == len(DEFECTS)
    assert [text.partition(": ")[0] for text in data.broken] == [str(path) for path in broken]
    assert all(text.partition(": ")[2] for text in data.broken)
    assert data.num_samples == CLASSES * 30 - len(DEFECTS)
    # Local rank 1 gets the same reports from the cache.
    again = load_images(folder, tmp_path / "cache", ReaderRank(local_rank=1))
    assert again.broken == data.broken


def test_broken_images_of_a_stream_are_reported_when_read(broken: list[Path], tmp_path: Path) -> None:
    data = load_images(tmp_path / "data", tmp_path / "cache", stream=True)
    assert not (tmp_path / "cache").exists()
    assert data.broken == []
    sampler = EpochSampler(data.num_samples, rank=0, world=1, batch_size=30, seed=0)
    labels = torch.cat([data.batch(sampler.next(), world=1).labels for _ in range(3)])
    assert sorted(text.partition(": ")[0] for text in data.broken) == [str(path) for path in broken]
    assert (labels < 0).sum() == len(DEFECTS)
    loss = torch.nn.functional.cross_entropy(torch.zeros(90, CLASSES), labels, reduction="sum", label_smoothing=0.1)
    assert loss.item() == pytest.approx((90 - len(DEFECTS)) * np.log(CLASSES), rel=1e-4)


def test_stream_of_mostly_broken_images_raises(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    imagenet(folder, classes=CLASSES, train=30, tests=TESTS, side=SIDE)
    for path in sorted((folder / "train").rglob("*.JPEG"))[:20]:
        path.write_bytes(b"")
    data = load_images(folder, tmp_path / "cache", stream=True)
    sampler = EpochSampler(data.num_samples, rank=0, world=1, batch_size=90, seed=0)
    with pytest.raises(DataError, match=r"20 of 90 images are broken, the first: .*JPEG"):
        data.batch(sampler.next(), world=1)


def test_report_of_new_broken_images_lists_ten_and_counts_all(capsys: pytest.CaptureFixture[str]) -> None:
    data = SimpleNamespace(broken=[f"image-{number}.JPEG: truncated" for number in range(13)])
    assert report_unreadable(cast("Data", data), Reporter(0, 1, None), reported=2) == 13
    printed = RunResult([], capsys.readouterr().out)
    samples = [event["sample"] for event in printed.events("broken")]
    assert samples == [f"image-{number}.JPEG:_truncated" for number in range(2, 12)]
    assert [event["count"] for event in printed.events("broken_samples")] == ["13"]


@pytest.fixture
def broken_test_set(tmp_path: Path) -> Path:
    """Return a set of images whose test images are all broken."""
    folder = tmp_path / "data"
    LAYOUTS["imagenet"](folder)
    for path in (folder / "val").rglob("*.JPEG"):
        path.write_bytes(b"")
    return folder


def test_small_stream_of_broken_images_raises(broken_test_set: Path, tmp_path: Path) -> None:
    data = load_images(broken_test_set, tmp_path / "cache", stream=True)
    with pytest.raises(DataError, match=r"4 of 4 images are broken, the first: .*JPEG"):
        next(data.test_batches(rank=0, world=1))


def test_cached_set_of_broken_images_is_rejected(broken_test_set: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="6 of 6 images are broken"):
        load_images(broken_test_set, tmp_path / "cache")


def test_folder_without_images_and_broken_shard_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--data-dir"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)
    (tmp_path / "train-000000.tar").write_bytes(b"something else" * 100)
    with pytest.raises(DataError, match=r"train-000000.tar is broken"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)


def test_resnet18_learns_generated_tiny_imagenet(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path / "data", classes=8, train=60, tests=10)
    broken = next((tmp_path / "data" / "train").rglob("*.JPEG"))
    broken.write_bytes(b"")
    flags = ("--no-fake-data", "--arch=resnet18", "--image-size=64", "--num-classes=8", "--batch-size=32")
    result = run(
        *flags,
        f"--data-dir={tmp_path}/data",
        f"--cache-dir={tmp_path}/cache",
        "--epochs=3",
        "--learning-rate=0.02",
        data=tmp_path,
        recipe="imagenet",
    )
    assert result.events("broken_samples")[0]["count"] == "1"
    assert str(broken) in result.events("broken")[0]["sample"]
    losses = [float(event["loss"]) for event in result.events("train")]
    assert losses[-1] < losses[0] / 2
    assert float(result.events("done")[0]["test_accuracy"]) > 60
