"""Script of the example `mxnet-horovod`: train digits with MXNet. Horovod averages the gradients.

mpirun starts one process per rank.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

# Horovod cannot send arrays in the layout of oneDNN, so turn oneDNN off. MXNet reads these variables at its import.
os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_STORAGE_FALLBACK_LOG_VERBOSE="0")

import horovod.mxnet as hvd
import mxnet as mx
from recipes.mxnet_digits import BATCH, accuracy, batches, load, network, train_step


def main() -> None:
    """Train. Print a `train` line and a `test` line per epoch on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    train_images, train_labels, test_images, test_labels = load(rank, size)
    # All ranks take equally many steps. Otherwise a rank with one more batch would wait for the others forever.
    steps = len(train_images) // BATCH if size == 1 else min(len(load(each, size)[0]) for each in range(size)) // BATCH
    net = network()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    optimizer = mx.optimizer.SGD(learning_rate=options.learning_rate, momentum=0.9)
    trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
    for epoch in range(1, options.epochs + 1):
        started = time.monotonic()
        losses = [train_step(net, trainer, *batch) for batch in batches(train_images, train_labels, epoch, steps)]
        rate = steps * BATCH / (time.monotonic() - started)
        test = accuracy(net, test_images, test_labels)
        # Write each line in one call, because the ranks share mpirun's output. `print` writes twice.
        sys.stdout.write(
            f"train epoch={epoch} step={steps}/{steps} loss={sum(losses) / steps:.4f} rate={rate:.1f} "
            f"global_rate={rate * size:.1f} global_step={epoch * steps} rank={rank}/{size}\n"
        )
        sys.stdout.write(f"test epoch={epoch} global_step={epoch * steps} accuracy={test:.2f} rank={rank}/{size}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
