"""The cache of decoded images: built once, and rebuilt if the cache is damaged or the images have changed."""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from images.trainer.made_images import imagenet
from tests.trainer.image_sets import LAYOUTS, ONLY_RANK, SIDE, load_images, write_tar
from trainer.data.image_cache import INDEX, LOCK, PIXELS, load_cached
from trainer.data.image_files import ImageFile, find_images
from trainer.data.images import FolderImages
from trainer.exit_codes import StorageError
from trainer.storage import Folder


def image_folder(tmp_path: Path) -> Path:
    """Return a folder with a small set of images."""
    LAYOUTS["imagenet"](tmp_path / "data")
    return tmp_path / "data"


def cache_entry(cache: Path) -> Path:
    """Return the only cache in a folder of caches."""
    (entry,) = (path for path in cache.iterdir() if path.name != LOCK)
    return entry


def load_pixels(source: Folder, cache: Path) -> bytes:
    """Return the decoded training images, from the cache if possible."""
    images, _ = find_images(source, "train", ONLY_RANK)
    return load_cached(source, images, SIDE, cache, is_builder=True, heartbeat=lambda: None).pixels.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unchanged_images_are_decoded_once_into_the_cache(layout: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    LAYOUTS[layout](folder)
    before = load_images(folder, tmp_path / "cache")
    for path in [*folder.rglob("*.JPEG"), *folder.rglob("*.tar")]:
        content, before_damage = path.read_bytes(), path.stat()
        # Damage only the images. The headers of a shard's members stay readable.
        path.write_bytes(content.replace(b"\xff\xd8\xff", bytes(3)))
        os.utime(path, ns=(before_damage.st_atime_ns, before_damage.st_mtime_ns))
    after = load_images(folder, tmp_path / "cache")
    assert after.broken == []
    assert after.num_samples == before.num_samples


def bmp(grey: int) -> bytes:
    """Return an image of one grey level. The size of the file does not depend on the level."""
    file = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (grey,) * 3).save(file, "BMP")
    return file.getvalue()


def write_folders(folder: Path, grey: int) -> None:
    for name in ("a", "b"):
        (folder / "train" / name).mkdir(parents=True, exist_ok=True)
        (folder / "train" / name / "0.bmp").write_bytes(bmp(grey))


def write_shard(folder: Path, grey: int) -> None:
    folder.mkdir(exist_ok=True)
    members = [("0.bmp", bmp(grey)), ("0.cls", b"0"), ("1.bmp", bmp(grey)), ("1.cls", b"1")]
    write_tar(folder / "train-0.tar", members)


@pytest.mark.parametrize("write", [write_folders, write_shard], ids=["folders", "shard"])
def test_changed_images_are_decoded_again_into_the_cache(write: Callable[[Path, int], None], tmp_path: Path) -> None:
    source, cache = Folder(f"{tmp_path}/data"), tmp_path / "cache"
    for grey in (0, 200):
        write(tmp_path / "data", grey)
        assert set(load_pixels(source, cache)) == {grey}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no index": lambda entry: (entry / INDEX).unlink(),
    "empty index": lambda entry: (entry / INDEX).write_bytes(b""),
    "index of something else": lambda entry: (entry / INDEX).write_bytes(b'{"images": 3}'),
    "no pixels": lambda entry: (entry / PIXELS).unlink(),
    "pixels cut short": lambda entry: os.truncate(entry / PIXELS, 100),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_cache_is_replaced(damage: Callable[[Path], object], tmp_path: Path) -> None:
    source, cache = Folder(str(image_folder(tmp_path))), tmp_path / "cache"
    before = load_pixels(source, cache)
    entry = cache_entry(cache)
    damage(entry)
    assert load_pixels(source, cache) == before
    assert cache_entry(cache) == entry


def test_cache_on_nearly_full_disk_may_use_a_hundredth_of_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagenet(tmp_path / "data", classes=2, train=2, tests=1, side=SIDE)
    # The cache keeps four images. Their edges have 27 pixels, an eighth more than the crops' 24.
    needed_bytes = 4 * 27 * 27 * 3

    def load_with_free_space(factor: int) -> FolderImages:
        disk = SimpleNamespace(total=10_000 * needed_bytes, free=factor * needed_bytes)
        monkeypatch.setattr("trainer.data.image_cache.shutil.disk_usage", lambda _path: disk)
        return load_images(tmp_path / "data", tmp_path / f"cache-{factor}")

    assert load_with_free_space(100).num_samples == 4
    with pytest.raises(StorageError, match="a tenth of the disk must stay free; the disk must have space for"):
        load_with_free_space(99)


def test_cache_on_too_small_disk_is_rejected(tmp_path: Path) -> None:
    images = [ImageFile(file="none", start=0, size=1, version="", name="none", label=0)] * 1000
    with pytest.raises(StorageError, match=r"must have space for 2793967\.7 GiB of decoded images: set --cache-dir"):
        load_cached(Folder(str(tmp_path)), images, 10**6, tmp_path / "cache", is_builder=True, heartbeat=lambda: None)


def test_cache_build_waits_for_lock_and_removes_drafts(tmp_path: Path) -> None:
    folder, cache = image_folder(tmp_path), tmp_path / "cache"
    draft = cache / f"{'0' * 16}.draft"
    draft.mkdir(parents=True)
    source = Folder(str(folder))
    images, _ = find_images(source, "train", ONLY_RANK)
    with (cache / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        has_draft: list[bool] = []

        def heartbeat() -> None:
            has_draft.append(draft.exists())
            lock.close()

        load_cached(source, images, SIDE, cache, is_builder=True, heartbeat=heartbeat)
    assert has_draft[0], "the draft must stay while another process holds the lock"
    assert not draft.exists()


def test_cache_build_that_fails_leaves_no_draft(tmp_path: Path) -> None:
    source = Folder(str(image_folder(tmp_path)))
    images, _ = find_images(source, "train", ONLY_RANK)

    def heartbeat() -> None:
        raise StorageError("the others are gone")

    with pytest.raises(StorageError, match="are gone"):
        load_cached(source, images, SIDE, tmp_path / "cache", is_builder=True, heartbeat=heartbeat)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [LOCK]
