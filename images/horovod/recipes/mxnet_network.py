"""Small convolutional network for the digits in MXNet's Gluon, its training step and its accuracy."""

from __future__ import annotations

from collections.abc import Iterator

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
