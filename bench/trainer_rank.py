"""Rank of a trainer measure. It builds the timed training and then runs one block of steps for each request.

`python -m bench.trainer_rank KIND FOLDER`. Rank 0 reads a block's name per line and answers with `RESULT seconds...`.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import save as write

from bench.ddp_step import CLASSES, SIDE, SameTensors, our_block, plain_block
from bench.measure import RESULT
from bench.reference_loops import SAME
from trainer.checkpoints.checkpoint import SaveHooks
from trainer.checkpoints.run_checkpoints import RunCheckpoints
from trainer.checkpoints.tensor_files import TensorFilesWriter
from trainer.config import DigitsConfig, ImagenetConfig
from trainer.data.datasets import DIGIT_IMAGES, DIGIT_LABELS, Batch
from trainer.data.made_images import imagenet
from trainer.data.sampler import EpochSampler
from trainer.loop import Training
from trainer.reporter import Reporter
from trainer.runtime import Runtime, start_runtime
from trainer.step_log import Meter
from trainer.storage import Folder
from trainer.watchdog import Watchdog

EPOCHS = 1_000_000
STEPS = 20
GLOBAL_BATCH = 64
STANDSTILL = 1e-9
"""Learning rate at which weights do not change. The time of arithmetic can depend on values."""
SAVED_MODEL = "resnet50"
BUCKET = "bench"
Blocks = dict[str, Callable[[], tuple[float, ...]]]


class Silent(Reporter):
    """Reporter that prints and writes no events."""

    def event(self, name: str, gallery: Any = None, /, *, global_step: int | None = None, **values: Any) -> None:
        """Ignore an event."""


class NoMeter(Meter):
    """Meter that counts no samples."""

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Ignore the samples."""


def make_training(
    config: DigitsConfig | ImagenetConfig, runtime: Runtime, folder: Path, *, bare: bool = False, wandb: str = "off"
) -> Training:
    """Return Trainyard's loop. `bare` disables logging, metrics, clocks and watchdog."""
    report = Silent(runtime, None) if bare else Reporter(runtime, Folder(f"file://{folder}/run"), wandb=wandb)
    watch = Watchdog(runtime, timeout=config.process_group_timeout, on_slow=lambda _rank, _times: None)
    training = Training(config, runtime, report, None, watch, lambda: False)
    if not bare:
        watch.__enter__()
        return training
    training.log.meter = NoMeter(runtime.device)
    for clock in ("begin", "data_ready", "gradients_ready", "end"):
        setattr(training.log.steps, clock, lambda: None)
    for part, call in ((training.log, "record"), (training.watchdog, "heartbeat")):
        setattr(part, call, lambda *_: None)
    return training


def _same_digits(training: Training, runtime: Runtime) -> Batch:
    """Make a training use the same tensors at every step."""
    size = training.config.batch_size
    generator = torch.Generator().manual_seed(runtime.rank)
    images = torch.randn(size, 1, SIDE, SIDE, generator=generator)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    batch = Batch(images=images, labels=labels, scale=1 / size)
    training.data = SameTensors(batch, STEPS * size * runtime.world)
    training.sampler = EpochSampler(
        training.data.num_samples, rank=runtime.rank, world=runtime.world, batch_size=size, seed=0
    )
    return batch


def write_digits(folder: Path, *, samples: int) -> None:
    """Write a data set of black digits."""
    head = struct.pack(">4I", 0x803, samples, SIDE, SIDE)
    (folder / DIGIT_IMAGES).write_bytes(head + bytes([1]) + bytes(samples * SIDE**2 - 1))
    labels = bytes(number % CLASSES for number in range(samples))
    (folder / DIGIT_LABELS).write_bytes(struct.pack(">2I", 0x801, samples) + labels)


def _digits(folder: Path) -> DigitsConfig:
    # `Training` reads a data set before the bench replaces it with its tensors.
    write_digits(folder, samples=10)
    return DigitsConfig(epochs=EPOCHS, data_dir=str(folder), augment=False, learning_rate=STANDSTILL)


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of the work."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the work, summed over its threads.

    Other processes of the machine affect them little.
    """
    started = time.process_time()
    work()
    return time.process_time() - started


def loop(folder: Path, runtime: Runtime) -> Blocks:
    """Compare Trainyard's loop with a hand-written one.

    Both use the same tensors, whose memory addresses affect the time.
    """
    config = _digits(folder)
    training = make_training(config, runtime, folder)
    batch = _same_digits(training, runtime)
    model, optimizer = training.state.model, training.state.optimizer
    return {
        "ours": lambda: (cpu_seconds(lambda: our_block(training, runtime)),),
        "theirs": lambda: (cpu_seconds(lambda: plain_block(model, optimizer, batch, config, runtime)),),
    }


def observability(folder: Path, runtime: Runtime) -> Blocks:
    """Compare Trainyard's loop with the same loop without observability, on the same weights."""
    full, bare = (make_training(_digits(folder), runtime, folder, bare=bare) for bare in (False, True))
    for training in (full, bare):
        _same_digits(training, runtime)
    # Use the same tensors. Their memory addresses change a step's time more than the measured difference.
    bare.state, bare.model, bare.data = full.state, full.model, full.data
    return {
        "ours": lambda: (cpu_seconds(lambda: our_block(full, runtime)),),
        "theirs": lambda: (cpu_seconds(lambda: our_block(bare, runtime)),),
    }


def wandb(folder: Path, runtime: Runtime) -> Blocks:
    """Compare Trainyard's loop while Weights & Biases does not answer with the loop without it, on the same weights."""
    online, without = (make_training(_digits(folder), runtime, folder / mode, wandb=mode) for mode in ("online", "off"))
    for training in (online, without):
        _same_digits(training, runtime)
    without.state, without.model = online.state, online.model
    return {
        "ours": lambda: (our_block(online, runtime),),
        "theirs": lambda: (our_block(without, runtime),),
    }


def references(folder: Path, runtime: Runtime) -> Blocks:
    """Run Trainyard's loop with its defaults and in the reference scripts' memory format, on generated images."""
    ours = make_training(SAME, runtime, folder)
    best = make_training(dataclasses.replace(SAME, channels_last=True), runtime, folder)
    return {"ours": lambda: (our_block(ours, runtime),), "best": lambda: (our_block(best, runtime),)}


def ranks(folder: Path, runtime: Runtime) -> Blocks:
    """Run ResNet-18 on generated images of ImageNet's size, with the same global batch for any number of ranks."""
    config = ImagenetConfig(
        arch="resnet18",
        batch_size=GLOBAL_BATCH // runtime.world,
        steps_per_epoch=1,
        epochs=EPOCHS,
        bucket="",
    )
    training = make_training(config, runtime, folder)
    return {"ours": lambda: (our_block(training, runtime),)}


def _waits(config: ImagenetConfig, runtime: Runtime, folder: Path) -> Blocks:
    training = make_training(config, runtime, folder)
    taken: list[tuple[float, float]] = []
    take = training.log.steps.take

    def spy() -> Any:
        times = take()
        taken.append((times.data, times.total))
        return times

    training.log.steps.take = spy  # type: ignore[method-assign]  # times the original

    def block() -> tuple[float, ...]:
        taken.clear()
        our_block(training, runtime)
        return sum(data for data, _ in taken), sum(total for _, total in taken)

    return {"ours": block}


def generated(folder: Path, runtime: Runtime) -> Blocks:
    """Measure the wait for generated images, and the time of the steps."""
    config = ImagenetConfig(
        arch="resnet18", image_size=64, num_classes=10, batch_size=32, steps_per_epoch=8, epochs=EPOCHS
    )
    return _waits(config, runtime, folder)


def cache(folder: Path, runtime: Runtime) -> Blocks:
    """Measure the wait for images from the mapped cache, and the time of the steps."""
    return _waits(_images(folder, data_dir=str(folder / "images"), cache_dir=str(folder / "cache")), runtime, folder)


def bucket(folder: Path, runtime: Runtime) -> Blocks:
    """Measure the wait for images that each step reads from a bucket, and the time of the steps."""
    config = _images(folder, data_dir=f"s3://{BUCKET}/images", stream=True)
    there = Folder(config.data_dir)
    for path in (folder / "images").rglob("*.JPEG"):
        there.write(str(path.relative_to(folder / "images")), path.read_bytes())
    return _waits(config, runtime, folder)


def _images(folder: Path, **settings: Any) -> ImagenetConfig:
    """Create a folder of images and return a configuration that trains on it."""
    imagenet(folder / "images", classes=4, train=64, tests=1, side=72)
    return ImagenetConfig(
        arch="resnet18", image_size=64, num_classes=4, batch_size=32, epochs=EPOCHS, fake_data=False, **settings
    )


def save(folder: Path, runtime: Runtime) -> Blocks:
    """Measure the pause of training for a checkpoint of ResNet-50 and its optimizer, with and without a background
    save."""
    config = ImagenetConfig(arch=SAVED_MODEL, image_size=64, num_classes=10, batch_size=8, bucket=f"file://{folder}")
    training = make_training(config, runtime, folder)
    bucket = Folder(f"file://{folder}/saved")
    checkpoints = RunCheckpoints(config, bucket, runtime, training.state, training.report)
    training.checkpoints = checkpoints
    batch = training.data.batch(training.sampler.next(), world=1)
    training.step(batch)
    stood = 0.0
    copied = checkpoints.wait_for_copies

    def timed() -> None:
        nonlocal stood
        stood += seconds(copied)

    checkpoints.wait_for_copies = timed  # type: ignore[method-assign]  # times the original

    def beside() -> tuple[float, ...]:
        nonlocal stood
        stood = seconds(training.save)
        training.step(batch)
        checkpoints.wait()
        return (stood,)

    def standing() -> tuple[float, ...]:
        training.state.step += 1
        place = Folder(f"file://{folder}/standing")
        found = training.state.capture(runtime)
        writer = TensorFilesWriter(place, found.facts, rank=0, hooks=SaveHooks())
        return (seconds(lambda: write(dict(found.tensors), storage_writer=writer, no_dist=True)),)

    return {"ours": beside, "theirs": standing}


KINDS = {
    found.__name__: found for found in (loop, observability, wandb, references, ranks, generated, cache, bucket, save)
}


def serve(blocks: Blocks, runtime: Runtime) -> None:
    """Run a block for each request, until the input ends."""
    while True:
        name = runtime.broadcast(sys.stdin.readline().strip() if runtime.rank == 0 else "")
        if not name:
            break
        seconds = blocks[name]()
        if runtime.rank == 0:
            print(RESULT, *seconds, flush=True)
    runtime.wait_decision()
    runtime.close()


def main() -> None:
    """Run one rank of a kind of measure."""
    kind, folder = sys.argv[1], Path(sys.argv[2])
    runtime = start_runtime(_digits(folder))
    serve(KINDS[kind](folder, runtime), runtime)


if __name__ == "__main__":
    main()
