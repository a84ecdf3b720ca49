"""Folders and shards of images: labels, links, hidden files and formats. Each defect has an error with a remedy."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from images.trainer.made_images import imagenet, jpegs, tiny_imagenet
from tests.trainer.image_sets import ONLY_RANK, ReaderRank, load_images, write_tar
from trainer.data.image_cache import try_decode
from trainer.data.image_files import find_images
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import DataError, StorageError
from trainer.storage import Folder

PICTURE = next(jpegs(1, 1, 32, 0))[1]


def write_shard(path: Path, labels: Sequence[bytes], suffix: str = "cls") -> None:
    """Write a shard with one image and one label file per label."""
    write_tar(
        path,
        [
            member
            for number, label in enumerate(labels)
            for member in ((f"{number}.jpg", PICTURE), (f"{number}.{suffix}", label))
        ],
    )


@pytest.mark.parametrize(
    ("suffix", "label"),
    [
        ("cls", b"-1"),
        ("cls", b"cat"),
        ("cls", b"\xe9"),
        ("cls", b"9" * 30),
        ("json", b"[1, 2]"),
        ("json", b'{"label": null}'),
        ("json", b'{"label": -1}'),
        ("json", b'{"label": 1.7}'),
        ("json", b'{"label": true}'),
        ("json", b'{"label": Infinity}'),
        ("json", b'{"class": 1}'),
        ("json", b"{"),
    ],
)
def test_shard_label_that_is_not_a_class_is_rejected(tmp_path: Path, suffix: str, label: bytes) -> None:
    write_shard(tmp_path / "train-0.tar", [b"0" if suffix == "cls" else b'{"label": 0}', label], suffix)
    with pytest.raises(DataError, match=rf"train-0.tar:1.{suffix} has no class .*; must be .*0.*: create the shard"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)


def test_shard_label_beyond_class_names_is_rejected(tmp_path: Path) -> None:
    write_shard(tmp_path / "train-0.tar", [b"0", b"5"])
    (tmp_path / "classes.txt").write_text("cat\ndog\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train-0.tar:1.jpg has class 5; must be 0 to 1, .*classes.txt.*: "):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)


def test_test_image_of_untrained_class_is_rejected(tmp_path: Path) -> None:
    write_shard(tmp_path / "train-0.tar", [b"0", b"1"])
    write_shard(tmp_path / "val-0.tar", [b"0", b"7"])
    with pytest.raises(DataError, match=r"val-0.tar:1.jpg has class 7; must be 0 to 1, .*training set.*: "):
        load_images(tmp_path, stream=True)


def test_empty_lines_of_class_names_are_ignored(tmp_path: Path) -> None:
    write_shard(tmp_path / "train-0.tar", [b"0", b"1"])
    (tmp_path / "classes.txt").write_text("tabby cat\r\n\r\ngolden retriever\nfire truck\n\n", encoding="utf-8")
    assert find_images(Folder(str(tmp_path)), "train", ONLY_RANK)[1] == 3


def test_class_names_and_annotations_that_are_not_utf_8_are_rejected(tmp_path: Path) -> None:
    write_shard(tmp_path / "train-0.tar", [b"0"])
    (tmp_path / "classes.txt").write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(DataError, match=r"/classes.txt .*UTF-8"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)
    tiny_imagenet(tmp_path / "tiny", classes=1, train=1, tests=1, side=32)
    annotations = tmp_path / "tiny" / "val" / "val_annotations.txt"
    annotations.write_bytes(annotations.read_bytes() + b"caf\xe9\tn0\n")
    with pytest.raises(DataError, match=r"/val/val_annotations.txt .*UTF-8"):
        find_images(Folder(str(tmp_path / "tiny")), "val", ONLY_RANK)


def test_empty_lines_of_annotations_are_ignored(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path, classes=2, train=1, tests=1, side=32)
    annotations = tmp_path / "val" / "val_annotations.txt"
    annotations.write_bytes(annotations.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert len(find_images(Folder(str(tmp_path)), "val", ONLY_RANK)[0]) == 2


def test_dangling_link_is_a_broken_image(tmp_path: Path) -> None:
    imagenet(tmp_path / "data", classes=2, train=20, tests=1, side=32)
    missing = tmp_path / "data" / "train" / "n00000000" / "missing.JPEG"
    missing.symlink_to(tmp_path / "nothing")
    for stream in (False, True):
        data = load_images(tmp_path / "data", tmp_path / "cache", stream=stream)
        sampler = EpochSampler(data.num_samples, rank=0, world=1, batch_size=data.num_samples, seed=0)
        data.batch(sampler.next(), world=1)
        assert [text.partition(": ")[0] for text in data.broken] == [str(missing)]


def test_links_to_classes_and_images_are_followed(tmp_path: Path) -> None:
    imagenet(tmp_path / "whole", classes=2, train=4, tests=2, side=32)
    for split in ("train", "val"):
        linked_class, class_of_links = sorted((tmp_path / "whole" / split).iterdir())
        folder = tmp_path / "part" / split
        (folder / class_of_links.name).mkdir(parents=True)
        (folder / linked_class.name).symlink_to(linked_class)
        for image in class_of_links.iterdir():
            (folder / class_of_links.name / image.name).symlink_to(image)
    data = load_images(tmp_path / "part", stream=True)
    assert (data.classes, data.num_samples, data.num_tests) == (2, 8, 4)


@pytest.mark.parametrize("suffix", ["bmp", "GIF", "tif", "tiff", "ppm", "avif", "jfif", "jpe", "JPG", "png", "webp"])
def test_images_of_many_formats_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "train" / "cat" / f"x.{suffix}"
    path.parent.mkdir(parents=True)
    with Image.open(io.BytesIO(PICTURE)) as picture:
        picture.save(path)
    source = Folder(str(tmp_path))
    images, _ = find_images(source, "train", ONLY_RANK)
    assert isinstance(try_decode(source, images[0], 24), np.ndarray)


def test_files_that_are_not_images_are_counted_in_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_imagenet(tmp_path, classes=2, train=2, tests=1, side=32)
    for path in sorted((tmp_path / "train").iterdir()):
        (path / "boxes.txt").touch()  # as in Tiny-ImageNet
    find_images(Folder(str(tmp_path)), "train", ONLY_RANK)
    assert not capsys.readouterr().err
    for name in ("b.heic", "a.npy"):
        (path / name).touch()
    for rank in (0, 1):
        find_images(Folder(str(tmp_path)), "train", ReaderRank(rank=rank, world=2))
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert f"warning: {tmp_path}/train has 2 files that are hidden or have no image suffix" in warnings[0]
    assert f"{path.name}/a.npy" in warnings[0]
    assert ".png" in warnings[0]


def test_hidden_files_are_neither_classes_nor_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imagenet(tmp_path, classes=2, train=1, tests=1, side=32)
    for split in ("train", "val"):
        for name in (".ipynb_checkpoints/a.png", "n00000001/._a.JPEG", "n00000001/.thumbnails/a.png"):
            (tmp_path / split / name).parent.mkdir(exist_ok=True)
            (tmp_path / split / name).write_bytes(PICTURE)
    data = load_images(tmp_path, stream=True)
    assert (data.classes, data.num_samples, data.num_tests) == (2, 2, 2)
    assert sorted(data._train.labels) == [0, 1]
    assert f"{tmp_path}/train has 3 files that are hidden" in capsys.readouterr().err


def test_unreadable_class_folder_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagenet(tmp_path, classes=2, train=1, tests=1, side=32)
    scandir = os.scandir

    def fail(path: str) -> Iterator[os.DirEntry[str]]:
        if path.endswith("/train/n00000001"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StorageError, match=r"/train/n00000001 cannot be listed: Permission denied"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)


@pytest.mark.parametrize("layout", ["folders", "shards"])
def test_search_for_images_sends_heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    for number in range(5):
        if layout == "shards":
            write_shard(tmp_path / f"train-{number}.tar", [b"0"])
        else:
            folder = tmp_path / "train" / f"class-{number}"
            folder.mkdir(parents=True)
            (folder / "one.jpg").write_bytes(PICTURE)
    rank, heartbeats = ReaderRank(), list[bool]()
    monkeypatch.setattr(rank, "heartbeat", lambda: heartbeats.append(True))
    assert len(find_images(Folder(str(tmp_path)), "train", rank)[0]) == 5
    assert len(heartbeats) >= 5


def test_images_of_one_class_are_rejected(tmp_path: Path) -> None:
    imagenet(tmp_path, classes=1, train=4, tests=1, side=32)
    with pytest.raises(DataError, match="has images of one class; it must have two classes or more"):
        load_images(tmp_path, stream=True)


def test_image_outside_of_classes_is_rejected(tmp_path: Path) -> None:
    imagenet(tmp_path, classes=1, train=1, tests=1, side=32)
    (tmp_path / "train" / "preview.png").touch()
    with pytest.raises(DataError, match=r"train/preview.png is not in a class folder: move it into train/CLASS/ or re"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)


def test_missing_split_error_names_the_layouts(tmp_path: Path) -> None:
    imagenet(tmp_path, classes=2, train=1, tests=1, side=32)
    shutil.rmtree(tmp_path / "val")
    with pytest.raises(
        DataError, match=r"no images of val; it must have val/CLASS/\*.jpg .*val_annotations.txt.*; add"
    ):
        load_images(tmp_path, stream=True)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content, third: content[:third], id="cut between members"),
        pytest.param(lambda content, third: content[: third + 100], id="cut in a header"),
        pytest.param(
            lambda content, third: content[: third + 5] + bytes([content[third + 5] ^ 1]) + content[third + 6 :],
            id="changed byte of a header",
        ),
    ],
)
def test_truncated_or_damaged_shard_is_rejected(tmp_path: Path, damage: Callable[[bytes, int], bytes]) -> None:
    path = tmp_path / "train-0.tar"
    write_shard(path, [b"0", b"1", b"0"])
    with tarfile.open(path) as archive:
        third_image = archive.getmembers()[4].offset
    assert len(find_images(Folder(str(tmp_path)), "train", ONLY_RANK)[0]) == 3
    path.write_bytes(damage(path.read_bytes(), third_image))
    with pytest.raises(DataError, match=r"train-0.tar is broken .it is truncated.*create it again"):
        find_images(Folder(str(tmp_path)), "train", ONLY_RANK)


def test_shard_json_next_to_class_file_is_ignored(tmp_path: Path) -> None:
    notes = b'{"label": 5, "caption": "a wave"}'
    write_tar(tmp_path / "train-0.tar", [("a.jpg", PICTURE), ("a.cls", b"1"), ("a.json", notes), ("meta.json", b"{}")])
    images, classes = find_images(Folder(str(tmp_path)), "train", ONLY_RANK)
    assert [image.label for image in images] == [1]
    assert classes == 2


def test_shard_images_with_dots_in_their_names_are_skipped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = [("a.v1.jpg", PICTURE), ("a.v1.cls", b"0"), ("b.jpg", PICTURE), ("b.cls", b"1"), ("b.txt", b"a cat")]
    write_tar(tmp_path / "train-0.tar", members)
    for rank in (0, 1):
        images, _ = find_images(Folder(str(tmp_path)), "train", ReaderRank(rank=rank, world=2))
        assert [image.label for image in images] == [1]
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert "train-0.tar: number of skipped images: 1, " in warnings[0]
    assert "the first: 'a.v1.jpg'" in warnings[0]
