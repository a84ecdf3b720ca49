"""The handwritten digits in the image, as NumPy arrays: a rank's share of the training part, and the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "digits"
TEST_PART = 5
"""One image in five is for the test."""


def load(rank: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (count, 1, 28, 28) in 0..1 and labels (count,), of the training and of the test part."""
    pixels = np.frombuffer((FOLDER / "digits-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    labels = np.frombuffer((FOLDER / "digits-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8).astype(np.float32)
    images = pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255
    # The files have the ten digits in turn: without another order, a regular part of them has a few digits only.
    order = np.random.default_rng(0).permutation(len(images))
    test, train = np.split(order, [len(order) // TEST_PART])
    share = train[rank::size]
    return images[share], labels[share], images[test], labels[test]
