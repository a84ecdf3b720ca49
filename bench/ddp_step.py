"""Overhead of Trainyard's training loop over a plain loop: two ranks, the digits recipe's model, the same tensors.

`ours` is `Training.train_epoch` with all its work at a step: sampler, learning rate, metrics, printing, JSON lines,
TensorBoard, and the ranks' joint decision to continue. `theirs` is forward, backward and update with the same DDP
model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.nn import functional

from bench.measure import PROJECT, BenchError, Measure, in_turn
from bench.rank_processes import WITHOUT_GPU
from trainer.config import DigitsConfig, TrainConfig
from trainer.data.datasets import DIGIT_IMAGES, DIGIT_LABELS, Batch
from trainer.data.sampler import EpochSampler, Share
from trainer.loop import Training
from trainer.reporter import Reporter
from trainer.runtime import Runtime, start_runtime
from trainer.storage import Folder
from trainer.watchdog import Watchdog

NAME = "ddp-step"
GOAL = 1.02
PAIRS = 61
STEPS = 20
"""Number of steps in a block. A pair is one block of each side."""
RANKS = 2
CLASSES = 10
SIDE = 28
RESULT = "TRAINYARD_BENCH_RESULT"
"""Environment variable with the path of the record, for the ranks."""


class SameTensors:
    """Data set that returns the same batch at every step, without cost."""

    classes, channels, side = CLASSES, 1, SIDE
    num_tests = 0
    broken: Sequence[str] = ()

    def __init__(self, batch: Batch, num_samples: int) -> None:
        self._batch = batch
        self.num_samples = num_samples

    def follow(self, sampler: EpochSampler) -> None:
        """Ignore the sampler, because every step gets the same batch."""

    def batch(self, share: Share, *, world: int) -> Batch:
        """Return the batch."""
        del share, world
        return self._batch

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield no batches, because the bench does not measure evaluation."""
        del rank, world
        yield from ()


def our_block(training: Training, runtime: Runtime) -> float:
    """Return the seconds of Trainyard's loop for an epoch of STEPS steps."""
    runtime.barrier()
    started = time.perf_counter()
    training.train_epoch()
    runtime.barrier()
    seconds = time.perf_counter() - started
    training.sampler.next_epoch()
    return seconds


def plain_block(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, config: TrainConfig, runtime: Runtime
) -> float:
    """Return the seconds of a hand-written loop for STEPS steps."""
    runtime.barrier()
    started = time.perf_counter()
    for _ in range(STEPS):
        with runtime.autocast():
            logits = model(batch.images)
            loss = functional.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    runtime.barrier()
    return time.perf_counter() - started


def measure(runtime: Runtime, config: DigitsConfig, bucket: Folder) -> Measure:
    """Measure both sides alternately on this rank."""
    generator = torch.Generator().manual_seed(runtime.rank)
    images = torch.randn(config.batch_size, 1, SIDE, SIDE, generator=generator)
    labels = torch.randint(CLASSES, (config.batch_size,), generator=generator)
    batch = Batch(images=images, labels=labels, scale=1 / config.batch_size)

    report = Reporter(runtime, bucket.child(config.job))
    watch = Watchdog(runtime, timeout=config.process_group_timeout, on_slow=lambda _rank, _times: None)
    training = Training(config, runtime, report, bucket, watch, lambda: False)
    training.data = SameTensors(batch, STEPS * config.batch_size * runtime.world)
    training.sampler = EpochSampler(
        training.data.num_samples, rank=runtime.rank, world=runtime.world, batch_size=config.batch_size, seed=0
    )
    # Use the same model for both sides. The memory addresses of weights change a step's time more than the difference.
    model, optimizer = training.model, training.state.optimizer
    with watch:
        found = in_turn(
            NAME,
            GOAL,
            lambda: our_block(training, runtime),
            lambda: plain_block(model, optimizer, batch, config, runtime),
            PAIRS,
            progress=runtime.rank == 0,
        )
    runtime.wait_decision()
    report.close()
    return found


def rank_main(result: Path) -> None:
    """Run one rank of the measure. Rank 0 writes the record."""
    folder = result.parent
    config = DigitsConfig(epochs=PAIRS + 1, data_dir=str(folder), bucket=f"file://{folder}", job="bench", augment=False)
    runtime = start_runtime(config)
    found = measure(runtime, config, Folder(config.bucket))
    if runtime.rank == 0:
        result.write_text(json.dumps([found.ours, found.theirs]), encoding="ascii")
    runtime.close()


def take() -> Measure:
    """Run the ranks and return their measure."""
    with tempfile.TemporaryDirectory() as folder:
        # `Training` reads a data set before the bench replaces it with its tensors. Write the smallest valid one.
        Path(folder, DIGIT_IMAGES).write_bytes(
            bytes.fromhex("00000803 0000000a 0000001c 0000001c") + bytes([1]) + bytes(10 * SIDE**2 - 1)
        )
        Path(folder, DIGIT_LABELS).write_bytes(bytes.fromhex("00000801 0000000a") + bytes(range(CLASSES)))
        result = Path(folder) / "result.json"
        launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m", "bench.ddp_step"]
        environment = {**os.environ, **WITHOUT_GPU, "OMP_NUM_THREADS": "1", RESULT: str(result)}
        words = [sys.executable, "-m", *launcher]
        done = subprocess.run(words, cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise BenchError(f"the ranks ended with {done.returncode}; what they said is above")
        ours, theirs = json.loads(result.read_text(encoding="ascii"))
    return Measure(name=NAME, ours=tuple(ours), theirs=tuple(theirs), goal=GOAL)


def main() -> int:
    """Take the measure and print it. Return 0 if its goal is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.ddp_step", description=__doc__)
    parser.add_argument("--json", type=Path, help="file to append the record to, as one line of JSON")
    options = parser.parse_args()
    try:
        found = take()
    except BenchError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    print(found.line(), flush=True)
    if options.json:
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found.record()) + "\n")
    return 0 if found.is_held else 1


if __name__ == "__main__":
    if RESULT in os.environ:
        rank_main(Path(os.environ[RESULT]))
    else:
        sys.exit(main())
