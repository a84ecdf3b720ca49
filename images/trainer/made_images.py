"""Generate small data sets of images that a network can learn, in the layout of ImageNet, Tiny-ImageNet or WebDataset.

`python made_images.py FOLDER` writes a data set in Tiny-ImageNet's layout.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image


def jpegs(classes: int, per_class: int, side: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Yield the class and the JPEG of each image: a wave with noise, whose direction and colour depend on the class."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:side, 0:side] / side
    for label in range(classes):
        angle = np.pi * label / classes
        hue = 2 * np.pi * label / classes
        colour = 0.5 + 0.5 * np.cos(hue + np.array([0, 2, 4]) * np.pi / 3)
        for _ in range(per_class):
            phase = generator.uniform(0, 2 * np.pi)
            wave = np.sin(18 * (np.cos(angle) * rows + np.sin(angle) * columns) + phase)
            pixels = 128 + 60 * wave[..., None] * colour + generator.normal(0, 25, (side, side, 3))
            content = io.BytesIO()
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=85)
            yield label, content.getvalue()


def imagenet(folder: Path, *, classes: int, train: int, tests: int, side: int) -> None:
    """Write `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, with the given number of images per class."""
    for split, count, seed in (("train", train, 0), ("val", tests, 1)):
        for number, (label, content) in enumerate(jpegs(classes, count, side, seed)):
            path = folder / split / f"n{label:08d}" / f"{split}_{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def tiny_imagenet(folder: Path, *, classes: int, train: int, tests: int, side: int = 64) -> None:
    """Write `train/CLASS/images/*.JPEG`, `val/images/*.JPEG` and `val/val_annotations.txt`."""
    for number, (label, content) in enumerate(jpegs(classes, train, side, 0)):
        path = folder / "train" / f"n{label:08d}" / "images" / f"n{label:08d}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    images = folder / "val" / "images"
    images.mkdir(parents=True)
    lines = []
    for number, (label, content) in enumerate(jpegs(classes, tests, side, 1)):
        (images / f"val_{number}.JPEG").write_bytes(content)
        lines.append(f"val_{number}.JPEG\tn{label:08d}\t0\t0\t{side - 1}\t{side - 1}\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines), encoding="utf-8")


def shards(folder: Path, *, classes: int, train: int, tests: int, side: int, per_shard: int) -> None:
    """Write shards `train-000000.tar` and `val-000000.tar` and so on, with `KEY.jpg` and `KEY.cls` for each image."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count, seed in (("train", train, 0), ("val", tests, 1)):
        samples = list(jpegs(classes, count, side, seed))
        for start in range(0, len(samples), per_shard):
            with tarfile.open(folder / f"{split}-{start // per_shard:06d}.tar", "w") as archive:
                for number, (label, content) in enumerate(samples[start : start + per_shard], start=start):
                    for name, data in ((f"{number:06d}.jpg", content), (f"{number:06d}.cls", str(label).encode())):
                        member = tarfile.TarInfo(name)
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    tiny_imagenet(Path(sys.argv[1]), classes=10, train=40, tests=10)
