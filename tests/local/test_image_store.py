"""Clones of the image store: complete, and without shared files that two containerds would write."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from infra.local import image_store
from infra.local.image_store import DATABASES, INGEST_FOLDER, clone_store

LAYER = "io.containerd.content.v1.content/blobs/sha256/00"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with one layer and a truncated import."""
    monkeypatch.setattr(image_store, "cache_folder", lambda: tmp_path)
    images = tmp_path / "images"
    for name in (*DATABASES, LAYER, f"{INGEST_FOLDER}/1/data"):
        file = images / "store" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name, encoding="utf-8")
    (images / "references.json").write_text('["trainyard.local/pause:1"]', encoding="utf-8")
    return images / "store"


def test_a_clone_shares_what_never_changes_and_nothing_else(store: Path, tmp_path: Path) -> None:
    clone = tmp_path / "node"
    clone_store(clone)
    assert (clone / LAYER).samefile(store / LAYER)
    for name in DATABASES:
        assert (clone / name).read_bytes() == (store / name).read_bytes()
        assert not (clone / name).samefile(store / name)
    assert list(clone.rglob("data")) == []
    assert (store / INGEST_FOLDER / "1" / "data").exists()


def test_a_clone_waits_until_an_import_is_done(store: Path, tmp_path: Path) -> None:
    cloning = threading.Thread(target=clone_store, args=[tmp_path / "node"])
    with (store.parent / "store.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cloning.start()
        cloning.join(0.5)
        assert cloning.is_alive()
        assert not (tmp_path / "node").exists()
    cloning.join(60)
    assert (tmp_path / "node" / LAYER).exists()
