"""Script of the example `tf-horovod`: measure images per second of a Keras network on random images, with Horovod."""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import horovod.tensorflow as hvd
import tensorflow as tf


def main() -> None:
    """Measure the rate. Every rank prints a line per iteration. Rank 0 also prints its mean rate and the total."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="ResNet50", help="name in tf.keras.applications")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--warmup-batches", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--batches", type=int, default=5, help="batches per iteration")
    options = parser.parse_args()
    hvd.init()
    shape = (options.image_size, options.image_size, 3)
    model = getattr(tf.keras.applications, options.model)(weights=None, input_shape=shape)
    optimizer = tf.keras.optimizers.legacy.SGD(0.01)
    images = tf.random.uniform((options.batch_size, *shape))
    labels = tf.random.uniform((options.batch_size,), maxval=1000, dtype=tf.int64)
    loss_of = tf.losses.SparseCategoricalCrossentropy()

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as recorded:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(recorded)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    step()
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    for _ in range(options.warmup_batches):
        step()
    rates = []
    for iteration in range(1, options.iterations + 1):
        started = time.monotonic()
        for _ in range(options.batches):
            loss = step()
        rates.append(options.batch_size * options.batches / (time.monotonic() - started))
        # Write each line in one call, because the ranks share mpirun's output. `print` writes twice.
        sys.stdout.write(
            f"train step={iteration * options.batches} loss={float(loss):.4f} rate={rates[-1]:.1f} "
            f"rank={hvd.rank()}/{hvd.size()}\n"
        )
        sys.stdout.flush()
    total = hvd.allreduce(tf.constant(statistics.mean(rates)), op=hvd.Sum, name="total")
    if hvd.rank() == 0:
        print(
            f"rate each={statistics.mean(rates):.1f} total={float(total):.1f} images/s ranks={hvd.size()}", flush=True
        )


if __name__ == "__main__":
    main()
