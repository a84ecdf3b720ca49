"""Script of the example `mxnet-ps`: train digits with MXNet's parameter servers.

All pods run this script. The operator sets each pod's role in DMLC_ROLE.
"""

from __future__ import annotations

import argparse
import time

# In a scheduler or server, this import does the pod's work until the workers are done, and then ends the process.
import mxnet as mx
from mxnet import gluon
from recipes.mxnet_digits import BATCH, accuracy, batches, load, network, train_step


def main() -> None:
    """Train. Print a `train` line and a `test` line per epoch on every worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args()
    store = mx.kv.create("dist_sync")
    rank, size = store.rank, store.num_workers
    train_images, train_labels, test_images, test_labels = load(rank, size)
    steps = min(len(load(each, size)[0]) for each in range(size)) // BATCH
    net = network()
    settings = {"learning_rate": options.learning_rate / size, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store)
    for epoch in range(1, options.epochs + 1):
        started = time.monotonic()
        losses = [train_step(net, trainer, *batch) for batch in batches(train_images, train_labels, epoch, steps)]
        rate = steps * BATCH / (time.monotonic() - started)
        loss = sum(losses) / steps
        print(
            f"train epoch={epoch} step={steps}/{steps} loss={loss:.4f} rate={rate:.1f} global_step={epoch * steps} "
            f"rank={rank}/{size}",
            flush=True,
        )
        test = accuracy(net, test_images, test_labels)
        print(f"test epoch={epoch} global_step={epoch * steps} accuracy={test:.2f} rank={rank}/{size}", flush=True)


if __name__ == "__main__":
    main()
