"""Files of digits: valid files are loaded, and invalid files are rejected with a remedy."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import DigitsConfig
from trainer.data.datasets import DIGIT_IMAGES, DIGIT_LABELS, Digits
from trainer.exit_codes import DataError


def write(folder: Path, *, count: int = 20, side: int = 28, labels: bytes | None = None) -> None:
    """Write files of `count` random images. By default, their labels are 0 to 9 in turn."""
    pixels = torch.randint(256, (count * side * side,), dtype=torch.uint8).numpy().tobytes()
    (folder / DIGIT_IMAGES).write_bytes(struct.pack(">4I", 0x803, count, side, side) + pixels)
    if labels is None:
        labels = bytes(index % 10 for index in range(count))
    (folder / DIGIT_LABELS).write_bytes(struct.pack(">2I", 0x801, len(labels)) + labels)


def load(folder: Path) -> Digits:
    return Digits(DigitsConfig(data_dir=str(folder)), torch.device("cpu"))


def test_valid_digit_files_are_loaded(tmp_path: Path) -> None:
    write(tmp_path, labels=bytes(index % 3 for index in range(20)))
    found = load(tmp_path)
    assert (found.classes, found.sample_shape, found.num_samples, found.num_tests) == (10, (1, 28, 28), 16, 4)


@pytest.mark.parametrize(
    "wrong",
    [{"side": 32}, {"count": 3}, {"labels": bytes(7)}, {"labels": bytes([0, 1, 2, 99, 4, 15]) + bytes(14)}],
    ids=["size", "too few images", "too few labels", "unknown labels"],
)
def test_files_that_do_not_hold_digits_are_rejected(wrong: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, **wrong)
    with pytest.raises(DataError, match=r"images of .* and as many labels from 0 to 9: create the files again"):
        load(tmp_path)


def test_compressed_file_is_rejected(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / DIGIT_IMAGES
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataError, match=f"{DIGIT_IMAGES} is compressed; unpack it with gunzip"):
        load(tmp_path)
