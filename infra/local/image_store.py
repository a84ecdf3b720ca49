"""The images that nodes start with: imported once into a store on disk, which every node clones by hard links.

The store is a containerd root folder. Image layers never change, so a clone costs directory entries and no space.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.local.control_plane import UNSHARE
from infra.local.settings import cache_folder

DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
"""The files that containerd changes in place: a clone has copies of its own."""
PROJECT = Path(__file__).resolve().parents[2]


def store_folder() -> Path:
    """The store's containerd root folder."""
    return cache_folder() / "images" / "store"


def stored_references() -> list[str]:
    """References of the images in the store, oldest first."""
    try:
        return list(json.loads((store_folder().parent / "references.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []


def import_archive(archive: Path, reference: str, *, replaces: Sequence[str] = ()) -> None:
    """Add the image in `archive` (docker or OCI format) to the store as `reference`, and drop those it `replaces`."""
    store_folder().mkdir(parents=True, exist_ok=True)
    words = [*UNSHARE, sys.executable, "-m", "infra.local.image_import", str(store_folder()), str(archive), *replaces]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)}
    )
    if done.returncode != 0:
        raise RuntimeError(f"image {reference} could not be imported:\n{done.stderr[-2000:]}")
    references = [each for each in stored_references() if each not in {reference, *replaces}] + [reference]
    target = store_folder().parent / "references.json"
    draft = target.with_suffix(".new")
    draft.write_text(json.dumps(references), encoding="utf-8")
    draft.replace(target)


def clone_store(target: Path) -> None:
    """Make `target` a containerd root with the store's images; a target that is there already is kept."""
    if target.exists():
        return
    if not stored_references():
        raise RuntimeError("no images are in the store; run `make setup`")
    draft = target.with_name(target.name + ".new")
    if draft.exists():
        shutil.rmtree(draft)
    subprocess.run(["cp", "--archive", "--link", str(store_folder()), str(draft)], check=True)
    for database in DATABASES:
        (draft / database).unlink()
        shutil.copy2(store_folder() / database, draft / database)
    draft.rename(target)
