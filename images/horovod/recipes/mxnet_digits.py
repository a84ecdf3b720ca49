"""Code that two examples share: the handwritten digits in the container image, and a network in MXNet's Gluon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

BATCH = 64


def network() -> gluon.nn.HybridSequential:
    """Return a network with two convolutions and two dense layers, and the same initial weights on every rank."""
    mx.random.seed(0)
    net = gluon.nn.HybridSequential()
    for channels in (16, 32):
        net.add(gluon.nn.Conv2D(channels, kernel_size=5, activation="relu"))
        net.add(gluon.nn.MaxPool2D(pool_size=2, strides=2))
    net.add(gluon.nn.Flatten(), gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 1, 28, 28)))
    return net


def batches(
    images: np.ndarray, labels: np.ndarray, epoch: int, count: int
) -> Iterator[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
    """Yield `count` batches in an order that depends on the epoch."""
    order = np.random.default_rng(epoch).permutation(len(images))
    for step in range(count):
        chosen = order[step * BATCH : (step + 1) * BATCH]
        yield mx.nd.array(images[chosen]), mx.nd.array(labels[chosen])


def train_step(net: gluon.Block, trainer: gluon.Trainer, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> float:
    """Run one step of stochastic gradient descent. Return the mean loss."""
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(images), labels)
    loss.backward()
    trainer.step(len(images))
    return float(loss.mean().asscalar())


def accuracy(net: gluon.Block, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the percentage of correctly classified images."""
    found = net(mx.nd.array(images)).argmax(axis=1).asnumpy()
    return float((found == labels).mean() * 100)


FOLDER = Path(__file__).resolve().parents[1] / "digits"
TEST_PART = 5
"""Divisor for the test set: one in five images belongs to it."""


def load(rank: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images (count, 1, 28, 28) in 0..1 and labels (count,): this rank's training data, then all test data."""
    pixels = np.frombuffer((FOLDER / "digits-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    labels = np.frombuffer((FOLDER / "digits-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8).astype(np.float32)
    images = pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255
    # The files repeat the digits 0 to 9. Without a random order, a rank could get only some of the digits.
    order = np.random.default_rng(0).permutation(len(images))
    test, train = np.split(order, [len(order) // TEST_PART])
    share = train[rank::size]
    return images[share], labels[share], images[test], labels[test]
