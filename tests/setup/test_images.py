"""Images of the local cluster: archives without the layers that nodes have, image names, removal of old images."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import tarfile
from pathlib import Path

import pytest

from infra.builtin_images import TRAINER
from infra.local import image_builder, trainer_image
from infra.local.image_builder import Build, BuildahBuilder
from infra.project import CHECKOUT

REFERENCE = "trainyard.local/test:1"
LARGE_CONTENT, SMALL_CONTENT = (f"sha256:{digit * 64}" for digit in "ab")


def add_blob(layout: Path, content: bytes) -> str:
    """Write a blob. Return its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = image_builder.blob(layout, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return digest


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """Return an OCI layout with one image, which has a large and a small layer."""
    layers = [add_blob(tmp_path, b"\0" * (image_builder.LARGE_LAYER_BYTES + 1)), add_blob(tmp_path, b"small")]
    described = [
        {"digest": digest, "size": image_builder.blob(tmp_path, digest).stat().st_size, "mediaType": "layer"}
        for digest in layers
    ]
    config = {"rootfs": {"diff_ids": [LARGE_CONTENT, SMALL_CONTENT]}}
    manifest = {"config": {"digest": add_blob(tmp_path, json.dumps(config).encode())}, "layers": described}
    digest = add_blob(tmp_path, json.dumps(manifest).encode())
    named = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": REFERENCE}}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [named]}), encoding="utf-8")
    return tmp_path


def names_in_archive(layout: Path) -> set[str]:
    """Return the names of the files in the layout's archive."""
    stream = io.BytesIO()
    image_builder.write_archive(layout, REFERENCE, stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        return set(archive.getnames())


def test_first_archive_has_every_blob(layout: Path) -> None:
    blobs = {str(path.relative_to(layout)) for path in (layout / "blobs" / "sha256").iterdir()}
    assert names_in_archive(layout) == blobs | {"oci-layout", "index.json"}


def test_archive_omits_layers_that_nodes_have(layout: Path) -> None:
    before = names_in_archive(layout)
    (large,) = image_builder.empty_large_layers(layout, REFERENCE)
    assert not image_builder.blob(layout, large).exists()
    placeholder = image_builder.blob(layout, LARGE_CONTENT).stat()
    assert (placeholder.st_size, placeholder.st_blocks) == (image_builder.LARGE_LAYER_BYTES + 1, 0)
    assert not image_builder.blob(layout, SMALL_CONTENT).exists()
    assert before - names_in_archive(layout) == {f"blobs/sha256/{large.partition(':')[2]}"}
    assert image_builder.empty_large_layers(layout, REFERENCE) == []


def test_empty_large_layers_without_disk_space_keeps_the_list(layout: Path) -> None:
    (layout / "unpacked.json").write_text("[]", encoding="utf-8")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            image_builder.empty_large_layers(layout, REFERENCE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert image_builder.unpacked_layers(layout) == []


def test_prune_layout_keeps_stored_images_and_removes_other_images(layout: Path) -> None:
    image_builder.empty_large_layers(layout, REFERENCE)
    before = names_in_archive(layout)
    stale = add_blob(layout, b"layer of a removed image")
    image_builder.prune_layout(layout, [REFERENCE, "trainyard.local/of-docker:1"])
    assert names_in_archive(layout) == before
    assert image_builder.blob(layout, LARGE_CONTENT).exists()
    assert not image_builder.blob(layout, stale).exists()
    image_builder.prune_layout(layout, [])
    assert not image_builder.has_image(layout, REFERENCE)
    assert image_builder.unpacked_layers(layout) == []
    assert list(layout.glob("blobs/*/*")) == []


def test_prune_layout_without_layout_writes_nothing(tmp_path: Path) -> None:
    image_builder.prune_layout(tmp_path / "layout", [REFERENCE])
    assert list(tmp_path.iterdir()) == []


def test_omitted_chains_name_the_layers_that_an_archive_omits(layout: Path) -> None:
    assert image_builder.omitted_chains(layout, REFERENCE) == set()
    image_builder.empty_large_layers(layout, REFERENCE)
    # The chain ID of the first layer equals the layer's diff ID.
    assert image_builder.omitted_chains(layout, REFERENCE) == {LARGE_CONTENT}


def test_missing_image_is_named_in_the_error(layout: Path) -> None:
    assert not image_builder.has_image(layout, "trainyard.local/other:1")
    with pytest.raises(KeyError, match="other"):
        image_builder.manifest_of(layout, "trainyard.local/other:1")


def test_trainer_image_name_depends_on_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "trainer"
    sources.mkdir()
    (sources / "uv.txt").touch()
    (sources / "loop.py").write_text("a = 1\n", encoding="ascii")
    monkeypatch.setattr(trainer_image, "CHECKOUT", tmp_path)
    monkeypatch.setattr(trainer_image, "TRAINER_FOLDER", sources)
    first = trainer_image.image_reference(TRAINER)
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__" / "loop.pyc").write_bytes(b"x")
    assert trainer_image.image_reference(TRAINER) == first
    (sources / "loop.py").write_text("a = 2\n", encoding="ascii")
    assert trainer_image.image_reference(TRAINER) != first


def test_builtin_image_name_depends_on_its_folder_and_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "images" / "horovod").mkdir(parents=True)
    monkeypatch.setattr(trainer_image, "CHECKOUT", tmp_path)
    monkeypatch.setattr(trainer_image, "TRAINER_FOLDER", tmp_path / "trainer")
    names = set()
    for file in ("trainer/uv.txt", "images/horovod/Dockerfile", "trainer/loop.py"):
        (tmp_path / "trainer" / "uv.txt").touch()
        (tmp_path / file).write_text(file, encoding="ascii")
        names.add(trainer_image.image_reference("horovod"))
    assert len(names) == 2, "the name must not depend on the trainer's sources"
    assert all(name.startswith("trainyard.local/horovod:") for name in names)


def test_write_image_context_with_strict_umask_is_readable_by_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = os.umask(0o077)
    try:
        for folder in (trainer_image.digits_folder(), trainer_image.sotu_folder()):
            folder.mkdir(parents=True)
            (folder / "data").touch()
        trainer_image.write_image_context([CHECKOUT / "trainer" / "uv.txt"], tmp_path / "context")
    finally:
        os.umask(before)
    paths = {path.relative_to(tmp_path / "context"): path for path in (tmp_path / "context").rglob("*")}
    modes = {str(name): path.stat().st_mode & 0o777 for name, path in paths.items()}
    assert modes == {
        **dict.fromkeys(("digits", "sotu", "trainer"), 0o755),
        **dict.fromkeys(("digits/data", "sotu/data", "trainer/uv.txt"), 0o644),
    }


def test_dockerfiles_bind_no_file_that_buildah_would_cache() -> None:
    # buildah 1.28 reuses a cached step even if the content of a bind-mounted file has changed.
    files = sorted(CHECKOUT.glob("*/Dockerfile*")) + sorted(CHECKOUT.glob("images/*/Docker*"))
    assert len(files) >= 2
    for file in files:
        assert "--mount=type=bind,source=" not in file.read_text(encoding="utf-8"), file


@pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed: another engine builds images here")
def test_forget_stale_removes_images_that_the_store_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    builder = BuildahBuilder()
    leftovers = [builder.temporary / name for name in ("old", "new")]
    for leftover in leftovers:
        leftover.mkdir()
    os.utime(leftovers[0], (0, 0))
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY content /content\n", encoding="utf-8")
    references = [f"trainyard.local/{name}" for name in ("test:1", "test:2", "tests:1")]
    for reference in references:
        (tmp_path / "content").write_text(reference, encoding="utf-8")
        file = tmp_path / "Dockerfile"
        builder.build(Build(reference=reference, context=tmp_path, dockerfile=file, arguments={}, mounts={}))
    assert sorted(builder.images()) == references
    assert [leftover.exists() for leftover in leftovers] == [False, True]
    monkeypatch.setattr(trainer_image, "stored_references", lambda: ["trainyard.local/test:2"])
    trainer_image.forget_stale(builder, "trainyard.local/test")
    assert sorted(builder.images()) == ["trainyard.local/test:2", "trainyard.local/tests:1"]
    # A second call finds nothing to remove and does not fail.
    trainer_image.forget_stale(builder, "trainyard.local/test")
