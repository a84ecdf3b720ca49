"""Handwritten digits in the image, as NumPy arrays: a rank's share of the training data, and the test data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "digits"
TEST_PART = 5
"""Divisor of the number of images for the test data."""


def load(rank: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images (count, 1, 28, 28) in 0..1 and labels (count,), of the training and the test data."""
    pixels = np.frombuffer((FOLDER / "digits-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    labels = np.frombuffer((FOLDER / "digits-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8).astype(np.float32)
    images = pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255
    # The files contain the ten digits in turn. Without a random order, a regular share would have only some digits.
    order = np.random.default_rng(0).permutation(len(images))
    test, train = np.split(order, [len(order) // TEST_PART])
    share = train[rank::size]
    return images[share], labels[share], images[test], labels[test]
