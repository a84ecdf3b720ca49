"""Invalid files of digits are rejected with the defect."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch

from trainer.config import DigitsConfig
from trainer.data.datasets import DIGIT_IMAGES, DIGIT_LABELS, Digits
from trainer.exit_codes import DataError


def write(folder: Path, *, count: int = 20, side: int = 28, labels: bytes | None = None) -> None:
    """Files of `count` random images, and labels 0 to 9 in turn."""
    pixels = torch.randint(256, (count * side * side,), dtype=torch.uint8).numpy().tobytes()
    (folder / DIGIT_IMAGES).write_bytes(struct.pack(">4I", 0x803, count, side, side) + pixels)
    found = bytes(index % 10 for index in range(count)) if labels is None else labels
    (folder / DIGIT_LABELS).write_bytes(struct.pack(">2I", 0x801, len(found)) + found)


def load(folder: Path) -> Digits:
    return Digits(DigitsConfig(data_dir=str(folder)), torch.device("cpu"))


def test_valid_digit_files_are_loaded(tmp_path: Path) -> None:
    write(tmp_path, labels=bytes(index % 3 for index in range(20)))
    found = load(tmp_path)
    assert (found.classes, found.side, found.num_samples, found.num_tests) == (10, 28, 16, 4)


def test_label_that_is_not_a_digit_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, labels=bytes([0, 1, 2, 99, 4, 15]) + bytes(14))
    with pytest.raises(DataError, match=f"{DIGIT_LABELS} has 2 labels .* the first 99 at index 3; allowed are 0 to 9"):
        load(tmp_path)


def test_images_of_another_size_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, side=32)
    with pytest.raises(DataError, match=f"{DIGIT_IMAGES} has images of 32 x 32 pixels, not 28 x 28"):
        load(tmp_path)


def test_images_without_contrast_are_rejected(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / DIGIT_IMAGES).write_bytes(struct.pack(">4I", 0x803, 20, 28, 28) + bytes([7]) * 20 * 28 * 28)
    with pytest.raises(DataError, match=f"{DIGIT_IMAGES} has no digits: every pixel is 7"):
        load(tmp_path)


def test_empty_image_file_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, count=0)
    with pytest.raises(DataError, match=f"{DIGIT_IMAGES} is empty"):
        load(tmp_path)


def test_too_few_images_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, count=3)
    with pytest.raises(DataError, match="3 images, and at least 5 are needed"):
        load(tmp_path)


def test_more_images_than_labels_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, labels=bytes(7))
    with pytest.raises(DataError, match="20 images and 7 labels"):
        load(tmp_path)


def test_compressed_file_is_rejected(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / DIGIT_IMAGES
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataError, match=f"{DIGIT_IMAGES} is compressed; unpack it with gunzip"):
        load(tmp_path)
