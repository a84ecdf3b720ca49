"""Imports into the image store by the containerd that set-up built: images that are added, removed, or stay
unpacked."""

from __future__ import annotations

import json
import tarfile
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pytest

from infra.local.image_store import DATABASES, change_store, store_folder, stored_references
from infra.local.program_image import write_archive
from infra.local.settings import built_programs

FIRST, SECOND = "trainyard.local/first:1", "trainyard.local/second:1"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file to build images of, and an empty store with the built programs next to it."""
    built = built_programs()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built_programs().parent.mkdir()
    built_programs().symlink_to(built)
    path = tmp_path / "program"
    path.write_bytes(b"program")
    return path


def layers(reference: str, program: Path) -> tuple[bytes, list[str]]:
    """Return the archive of an image and the digests of its layers."""
    packed = BytesIO()
    write_archive(reference, program, packed)
    with tarfile.open(fileobj=BytesIO(packed.getvalue())) as archive:
        index = _json(archive, "index.json")
        manifest = _json(archive, _path(index["manifests"][0]["digest"]))
    return packed.getvalue(), [layer["digest"] for layer in manifest["layers"]]


def _json(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    member = archive.extractfile(name)
    assert member is not None
    found: dict[str, Any] = json.load(member)
    return found


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def without_layers(archive: bytes, digests: list[str], target: IO[bytes]) -> None:
    """Write the archive without some of its layers."""
    left_out = {_path(digest) for digest in digests}
    with (
        tarfile.open(fileobj=BytesIO(archive)) as source,
        tarfile.open(fileobj=target, mode="w|") as written,
    ):
        for member in source:
            if member.name not in left_out:
                written.addfile(member, source.extractfile(member))


def blob(digest: str) -> Path:
    """Return the store's file of a blob."""
    return store_folder() / "io.containerd.content.v1.content" / _path(digest)


def unpacked() -> list[Path]:
    """Return the unpacked copies of the program."""
    return sorted((store_folder() / "io.containerd.snapshotter.v1.overlayfs" / "snapshots").rglob("program"))


def test_import_unpacks_image_and_removes_replaced(program: Path) -> None:
    archive, (layer,) = layers(FIRST, program)
    change_store(FIRST, lambda target: _write(target, archive))
    assert blob(layer).exists()
    assert [path.read_bytes() for path in unpacked()] == [b"program"]
    program.write_bytes(b"changed")
    change_store(SECOND, partial(write_archive, SECOND, program), remove=[FIRST])
    assert stored_references() == [SECOND]
    assert not blob(layer).exists()
    assert [path.read_bytes() for path in unpacked()] == [b"changed"]


def test_import_without_forgotten_layer_uses_unpacked_copy(program: Path) -> None:
    archive, (layer,) = layers(FIRST, program)
    change_store(FIRST, lambda target: _write(target, archive))
    change_store(FIRST, None, forget=[layer])
    assert not blob(layer).exists()
    assert len(unpacked()) == 1
    again, _ = layers(SECOND, program)
    change_store(SECOND, partial(without_layers, again, [layer]))
    assert stored_references() == [FIRST, SECOND]
    assert len(unpacked()) == 1


def test_import_without_missing_layer_fails(program: Path) -> None:
    archive, missing = layers(FIRST, program)
    with pytest.raises(RuntimeError, match=f"image {FIRST} could not be imported"):
        change_store(FIRST, partial(without_layers, archive, missing))
    assert stored_references() == []


def test_import_databases_are_those_that_clones_copy(program: Path) -> None:
    change_store(FIRST, partial(write_archive, FIRST, program))
    found = {str(path.relative_to(store_folder())) for path in store_folder().rglob("*.db")}
    assert found == set(DATABASES)


def _write(target: IO[bytes], archive: bytes) -> None:
    target.write(archive)
