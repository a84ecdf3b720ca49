"""Image store of the nodes: imports of images, and clones of the store."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import stat
import tarfile
import threading
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pytest

from infra.local import image_builder, image_store, trainer_image
from infra.local.image_builder import Build, BuildahBuilder, EngineBuilder
from infra.local.image_store import (
    DATABASES,
    INGEST_FOLDER,
    MIN_SHARED_BYTES,
    SNAPSHOTS_FOLDER,
    change_store,
    clone_store,
    share_files,
    store_folder,
    stored_references,
    write_archive,
)
from infra.local.settings import PAUSE_IMAGE, built_programs
from infra.local.trainer_image import Progress, _remove_new_folder, ensure_stored, store_built

FIRST, SECOND = "trainyard.local/first:1", "trainyard.local/second:1"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file from which tests build images. The cache folder has an empty store and the built programs."""
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
    with tarfile.open(fileobj=BytesIO(archive)) as source, tarfile.open(fileobj=target, mode="w|") as written:
        for member in source:
            if member.name not in left_out:
                written.addfile(member, source.extractfile(member))


def blob(digest: str) -> Path:
    """Return the file of a blob in the store."""
    return store_folder() / "io.containerd.content.v1.content" / _path(digest)


def unpacked_copies(name: str = "program") -> list[Path]:
    """Return the unpacked copies of the program."""
    return sorted((store_folder() / "io.containerd.snapshotter.v1.overlayfs" / "snapshots").rglob(name))


def test_import_unpacks_image_and_removes_the_replaced_image(program: Path) -> None:
    archive, (layer,) = layers(FIRST, program)
    change_store(FIRST, lambda target: _write(target, archive))
    assert blob(layer).exists()
    assert [path.read_bytes() for path in unpacked_copies()] == [b"program"]
    program.write_bytes(b"changed")
    change_store(SECOND, partial(write_archive, SECOND, program), remove=[FIRST])
    assert stored_references() == [SECOND]
    assert not blob(layer).exists()
    assert [path.read_bytes() for path in unpacked_copies()] == [b"changed"]


def test_import_of_stored_reference_removes_the_earlier_copy(program: Path) -> None:
    change_store(FIRST, partial(write_archive, FIRST, program))
    program.write_bytes(b"changed")
    change_store(FIRST, partial(write_archive, FIRST, program))
    assert [path.read_bytes() for path in unpacked_copies()] == [b"changed"]


def test_import_without_forgotten_layer_uses_unpacked_copy(program: Path) -> None:
    archive, (layer,) = layers(FIRST, program)
    change_store(FIRST, lambda target: _write(target, archive))
    change_store(FIRST, None, forget=[layer])
    assert not blob(layer).exists()
    assert len(unpacked_copies()) == 1
    again, _ = layers(SECOND, program)
    change_store(SECOND, partial(without_layers, again, [layer]))
    assert stored_references() == [FIRST, SECOND]
    assert len(unpacked_copies()) == 1


def test_import_without_missing_layer_fails(program: Path) -> None:
    archive, missing = layers(FIRST, program)
    with pytest.raises(RuntimeError, match=f"image {FIRST} could not be imported"):
        change_store(FIRST, partial(without_layers, archive, missing))
    assert stored_references() == []


def test_import_creates_exactly_the_databases_that_clones_copy(program: Path) -> None:
    change_store(FIRST, partial(write_archive, FIRST, program))
    found = {str(path.relative_to(store_folder())) for path in store_folder().rglob("*.db")}
    assert found == set(DATABASES)


needs_buildah = pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed")


@pytest.fixture
def builder(program: Path, monkeypatch: pytest.MonkeyPatch) -> BuildahBuilder:
    """Return the builder. The layer with the program is a large layer."""
    monkeypatch.setattr(image_builder, "LARGE_LAYER_BYTES", 10_000)
    monkeypatch.setattr(trainer_image, "find_builder", BuildahBuilder)
    dockerfile = program.with_name("Dockerfile")
    dockerfile.write_text("FROM scratch\nCOPY program /program\n", encoding="utf-8")
    return BuildahBuilder()


def stored_image(folder: Path, number: int) -> bytes:
    """Build and store version `number` of an image of which the store keeps one. Return its archive for a node."""

    def build(builder: EngineBuilder, reference: str, progress: Progress) -> None:
        (folder / "program").write_bytes(random.Random(number).randbytes(20_000))
        file = folder / "Dockerfile"
        builder.build(Build(reference=reference, context=folder, dockerfile=file, arguments={}, mounts={}))
        store_built(builder, reference, progress, kept=1)

    target = BytesIO()
    ensure_stored(f"trainyard.local/test:{number}", print, build=build)(target)
    return target.getvalue()


@needs_buildah
@pytest.mark.usefixtures("builder")
def test_ensure_stored_earlier_version_is_built_and_unpacked_again(tmp_path: Path) -> None:
    for number in (1, 2, 1):
        stored_image(tmp_path, number)
    assert stored_references() == ["trainyard.local/test:1"]
    assert [path.read_bytes() for path in unpacked_copies()] == [random.Random(1).randbytes(20_000)]


@needs_buildah
def test_ensure_stored_image_that_the_builder_lost_is_built_again(builder: BuildahBuilder, tmp_path: Path) -> None:
    stored_image(tmp_path, 1)
    builder.remove(["trainyard.local/test:1"])
    shutil.rmtree(builder.layout)
    archive = stored_image(tmp_path, 1)
    assert stored_references() == ["trainyard.local/test:1"]
    assert [path.read_bytes() for path in unpacked_copies()] == [random.Random(1).randbytes(20_000)]
    with tarfile.open(fileobj=BytesIO(archive)) as written:
        assert "index.json" in written.getnames()


@needs_buildah
@pytest.mark.usefixtures("builder")
def test_ensure_stored_with_strict_umask_lets_pods_read_the_image() -> None:
    built = built_programs().resolve()
    built_programs().unlink()
    for folder in ("containerd", "pause"):
        (built_programs() / folder).mkdir(parents=True)
    for file in (built / "containerd").iterdir():
        (built_programs() / "containerd" / file.name).symlink_to(file)
    pause = built_programs() / "pause" / "pause"
    pause.write_bytes(b"program")
    pause.chmod(0o700)
    before = os.umask(0o077)
    try:
        ensure_stored(PAUSE_IMAGE, print)
    finally:
        os.umask(before)
    (unpacked,) = unpacked_copies("pause")
    assert [stat.filemode(path.stat().st_mode) for path in (unpacked, unpacked.parent)] == ["-rwxr-xr-x", "drwxr-xr-x"]


def _write(target: IO[bytes], archive: bytes) -> None:
    target.write(archive)


LAYER = "io.containerd.content.v1.content/blobs/sha256/00"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with one layer and the files of an unfinished import."""
    monkeypatch.setattr(image_store, "cache_folder", lambda: tmp_path)
    images = tmp_path / "images"
    for name in (*DATABASES, LAYER, f"{INGEST_FOLDER}/1/data"):
        file = images / "store" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name, encoding="utf-8")
    (images / "references.json").write_text('["trainyard.local/pause:1"]', encoding="utf-8")
    return images / "store"


def test_clone_store_links_layers_and_copies_databases(store: Path, tmp_path: Path) -> None:
    clone = tmp_path / "node"
    clone_store(clone)
    assert (clone / LAYER).samefile(store / LAYER)
    for name in DATABASES:
        assert (clone / name).read_bytes() == (store / name).read_bytes()
        assert not (clone / name).samefile(store / name)
    assert list(clone.rglob("data")) == []
    assert (store / INGEST_FOLDER / "1" / "data").exists()


def test_equal_files_of_builder_and_store_use_the_disk_once(store: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "builder", store / SNAPSHOTS_FOLDER]
    large, small = b"x" * MIN_SHARED_BYTES, b"x" * (MIN_SHARED_BYTES - 1)
    for index, folder in enumerate(folders):
        folder.mkdir(parents=True)
        for name, content in [("equal", large), ("small", small), ("other", large + b"%d" % index), ("script", large)]:
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755 if name == "script" else 0o644)
            os.utime(folder / name, (0, 0))
    (folders[1] / "script").chmod(0o700)
    share_files(folders[0])
    shared = [name for name in ("equal", "small", "other", "script") if (folders[0] / name).samefile(folders[1] / name)]
    assert shared == ["equal"]
    assert (folders[1] / "other").read_bytes() == large + b"1"


def test_clone_store_waits_for_import(store: Path, tmp_path: Path) -> None:
    cloning = threading.Thread(target=clone_store, args=[tmp_path / "node"])
    with (store.parent / "store.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cloning.start()
        cloning.join(0.5)
        assert cloning.is_alive()
        assert not (tmp_path / "node").exists()
    cloning.join(60)
    assert (tmp_path / "node" / LAYER).exists()


def test_remove_new_folder_removes_created_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    with _remove_new_folder(folder):
        folder.mkdir()
    assert not folder.exists()


def test_remove_new_folder_keeps_existing_and_used_folders(tmp_path: Path) -> None:
    with _remove_new_folder(tmp_path):
        pass
    used = tmp_path / "mount"
    with _remove_new_folder(used):
        used.mkdir()
        (used / "utab").touch()
    assert tmp_path.exists()
    assert (used / "utab").exists()
