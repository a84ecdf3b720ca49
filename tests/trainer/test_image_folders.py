"""Data sets with something wrong in them: each ends with what is wrong, what is allowed and what to do."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from trainer.config import ImagenetConfig
from trainer.data.image_files import Place, find_images
from trainer.data.images import FolderImages
from trainer.data.made_images import jpegs, tiny_imagenet
from trainer.exit_codes import DataError
from trainer.storage import Folder

HERE = Place()
PICTURE = next(jpegs(1, 1, 32, 0))[1]


def load(folder: Path) -> FolderImages:
    config = ImagenetConfig(fake_data=False, data_dir=str(folder), image_size=24, batch_size=4, stream=True)
    return FolderImages(config, torch.device("cpu"), HERE)


def shard(path: Path, labels: Sequence[bytes], ending: str = "cls") -> None:
    """A shard with one picture for each of the labels."""
    with tarfile.open(path, "w") as archive:
        for number, label in enumerate(labels):
            for name, content in ((f"{number}.jpg", PICTURE), (f"{number}.{ending}", label)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("ending", "label"),
    [
        ("cls", b"-1"),
        ("cls", b"cat"),
        ("cls", b"\xe9"),
        ("cls", b"9" * 30),
        ("json", b"[1, 2]"),
        ("json", b'{"label": null}'),
        ("json", b'{"label": -1}'),
        ("json", b'{"label": Infinity}'),
        ("json", b'{"class": 1}'),
        ("json", b"{"),
        ("json", b"[" * 100_000),
    ],
)
def test_a_label_that_is_no_class_is_named(tmp_path: Path, ending: str, label: bytes) -> None:
    shard(tmp_path / "train-0.tar", [b"0" if ending == "cls" else b'{"label": 0}', label], ending)
    with pytest.raises(DataError, match=rf"train-0.tar:1.{ending} names no class .*; allowed is .*0.*: make the shard"):
        find_images(Folder(str(tmp_path)), "train", HERE)


def test_a_label_above_the_names_of_the_classes_is_named(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", [b"0", b"5"])
    (tmp_path / "classes.txt").write_text("cat\ndog\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train-0.tar:1.jpg has class 5; allowed are 0 to 1, .*classes.txt.*: "):
        find_images(Folder(str(tmp_path)), "train", HERE)


def test_a_test_image_of_a_class_that_is_not_trained_is_named(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", [b"0", b"1"])
    shard(tmp_path / "val-0.tar", [b"0", b"7"])
    with pytest.raises(DataError, match=r"val-0.tar:1.jpg has class 7; allowed are 0 to 1, .*training set.*: "):
        load(tmp_path)


def test_names_of_classes_have_a_line_each(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", [b"0", b"1"])
    (tmp_path / "classes.txt").write_text("tabby cat\r\n\r\ngolden retriever\nfire truck\n\n", encoding="utf-8")
    assert find_images(Folder(str(tmp_path)), "train", HERE)[1] == 3


def test_lists_that_are_no_text_in_utf_8_are_named(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", [b"0"])
    (tmp_path / "classes.txt").write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(DataError, match=r"/classes.txt .*UTF-8"):
        find_images(Folder(str(tmp_path)), "train", HERE)
    tiny_imagenet(tmp_path / "tiny", classes=1, train=1, tests=1, side=32)
    annotations = tmp_path / "tiny" / "val" / "val_annotations.txt"
    annotations.write_bytes(annotations.read_bytes() + b"caf\xe9\tn0\n")
    with pytest.raises(DataError, match=r"/val/val_annotations.txt .*UTF-8"):
        find_images(Folder(str(tmp_path / "tiny")), "val", HERE)


def test_empty_lines_of_annotations_say_nothing(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path, classes=2, train=1, tests=1, side=32)
    annotations = tmp_path / "val" / "val_annotations.txt"
    annotations.write_bytes(annotations.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert len(find_images(Folder(str(tmp_path)), "val", HERE)[0]) == 2
