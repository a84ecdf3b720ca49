"""Rank of a trainer benchmark: build the models and data to time, then run a block of steps for each request.

`python -m bench.trainer_rank KIND FOLDER` starts a rank. Rank 0 reads the name of a block from each line of its input.
All ranks run the block, and rank 0 answers with `RESULT` and the numbers of the block. The first number is the time in
seconds that the bench compares.

A block of Trainyard's loop is a call of `Training.train_epoch`. Each step includes sampler, learning rate, metrics,
printing, JSON lines, TensorBoard, and the ranks' common decision to continue. A bare loop has fewer of these parts, see
`make_training`. A plain block is a hand-written loop with the same model or with torchtitan's.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors
from torch.nn import functional

from bench.measure import RESULT
from bench.reference_loops import CONFIG, LanguageSettings, first_gpu, language_epoch, torchtitan_model, wait_for_device
from images.trainer.made_images import imagenet
from trainer.checkpoints.checkpoint import SaveHooks
from trainer.checkpoints.state import RunCheckpoints
from trainer.checkpoints.tensor_files import TensorFilesWriter
from trainer.config import DigitsConfig, ImageConfig, ImagenetConfig, LanguageConfig, RecipeConfig
from trainer.data.datasets import DIGIT_IMAGES, DIGIT_LABELS, Batch
from trainer.data.sampler import EpochSampler, Share
from trainer.language.sizes import SEPARATOR
from trainer.language.task import BETAS, optimizer_groups
from trainer.loop import Training
from trainer.models import build_optimizer
from trainer.reporter import Reporter
from trainer.runtime import Runtime, start_runtime
from trainer.step_log import Meter
from trainer.storage import Folder
from trainer.watchdog import Watchdog

EPOCHS = 1_000_000
STEPS = 20
"""Number of steps in a block of digits."""
CLASSES = 10
SIDE = 28
GLOBAL_BATCH = 64
STANDSTILL_LEARNING_RATE = 1e-9
"""Learning rate that is too small to change a weight, because the time of a step can depend on the weights' values."""
LANGUAGE_STEPS, LANGUAGE_BATCH, LANGUAGE_CONTEXT = 10, 4, 256
"""Steps of a block of the language model, samples of a step, and tokens of a sample."""
GPU_VARIANTS: dict[str, dict[str, Any]] = {
    "eager": {},
    "compile": {"compile": True},
    "float8": {"compile": True, "float8": "rowwise"},
}
"""Settings of each variant of the language model on a GPU. torchtitan 0.3.0 has no tensorwise float8."""
SAVED_MODEL, SAVE_STEPS = "resnet50", 10
"""Model of the blocks with a save, and minimum number of steps of such a block."""
BUCKET = "bench"
Block = Callable[[], tuple[float, ...]]
"""Function that runs a block of steps and returns its numbers. The first is the time to compare, in seconds."""
Blocks = dict[str, Block]
"""Name of a block -> the block."""


class SameTensors:
    """Data set that returns the same batch at every step."""

    classes = CLASSES
    sample_shape: tuple[int, ...] = (1, SIDE, SIDE)
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


class SilentReporter(Reporter):
    """Reporter that prints and writes no events."""

    def event(self, name: str, gallery: Any = None, /, *, global_step: int | None = None, **values: Any) -> None:
        """Ignore an event."""


class NoMeter(Meter):
    """Meter that counts no samples."""

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Ignore the samples."""


def make_training(
    config: RecipeConfig, runtime: Runtime, folder: Path, *, bare: bool = False, wandb: str = "off"
) -> Training:
    """Return Trainyard's loop. If `bare` is True, it has no logging, metrics, clocks or watchdog."""
    report: Reporter = SilentReporter(0, 1, None)
    if not bare:
        report = Reporter(runtime.rank, runtime.world, Folder(f"file://{folder}/run"), wandb=wandb)
    watch = Watchdog(runtime, on_slow=lambda _rank, _times: None)
    watch.__enter__()
    training = Training(config, runtime, report, None, watch, lambda: False)
    if not bare:
        return training
    watch.__exit__()
    training.log.meter = NoMeter(runtime.device)
    for clock in ("begin", "data_ready", "gradients_ready", "end"):
        setattr(training.log.steps, clock, lambda: None)
    for part, call in ((training.log, "record"), (training.watchdog, "heartbeat")):
        setattr(part, call, lambda *_: None)
    return training


def _same_batch(training: Training, runtime: Runtime) -> Batch:
    """Make `training` use the same batch at every step, and return that batch."""
    size = training.config.batch_size
    generator = torch.Generator().manual_seed(runtime.rank)
    images = torch.randn(size, 1, SIDE, SIDE, generator=generator)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    batch = Batch(inputs=images, labels=labels, scale=1 / size)
    training.data = SameTensors(batch, STEPS * size * runtime.world)
    training.sampler = EpochSampler(
        training.data.num_samples, rank=runtime.rank, world=runtime.world, batch_size=size, seed=0
    )
    return batch


def write_digits(folder: Path, *, samples: int) -> None:
    """Write a data set of black images. One pixel of the first differs: equal pixels cannot be normalized."""
    head = struct.pack(">4I", 0x803, samples, SIDE, SIDE)
    (folder / DIGIT_IMAGES).write_bytes(head + bytes([1]) + bytes(samples * SIDE**2 - 1))
    labels = bytes(number % CLASSES for number in range(samples))
    (folder / DIGIT_LABELS).write_bytes(struct.pack(">2I", 0x801, samples) + labels)


def _digits(folder: Path) -> DigitsConfig:
    # `Training` must read some data set. The bench then replaces it with its own tensors.
    write_digits(folder, samples=10)
    return DigitsConfig(epochs=EPOCHS, data_dir=str(folder), augment=False, learning_rate=STANDSTILL_LEARNING_RATE)


def seconds(work: Callable[[], object]) -> float:
    """Call `work` and return its duration in seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def timed(runtime: Runtime, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Block:
    """Return a block that calls `work` on every rank, timed by `clock`."""

    def block() -> tuple[float, ...]:
        wait_for_device(runtime.device)
        runtime.barrier()
        started = clock()
        work()
        wait_for_device(runtime.device)
        runtime.barrier()
        return (clock() - started,)

    return block


def our_block(training: Training, clock: Callable[[], float] = time.perf_counter) -> Block:
    """Return a block of Trainyard's loop: one epoch."""

    def epoch() -> None:
        training.train_epoch()
        training.sampler.next_epoch()

    return timed(training.runtime, epoch, clock)


def plain_block(training: Training, batch: Batch, steps: int, clock: Callable[[], float] = time.perf_counter) -> Block:
    """Return a block of a hand-written loop on the weights of `training`.

    Both sides use the same tensors: other memory addresses change a step's time by more than the loops' difference.
    """
    model, optimizer, config = training.model, training.state.optimizer, training.config
    assert isinstance(config, ImageConfig), "the loop classifies images"

    def loop() -> None:
        for _ in range(steps):
            with training.runtime.autocast():
                logits = model(batch.inputs)
                loss = functional.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return timed(training.runtime, loop, clock)


def digits(clock: Callable[[], float], folder: Path, runtime: Runtime) -> Blocks:
    """Return Trainyard's loop and a plain one on random images of the digits' size."""
    training = make_training(_digits(folder), runtime, folder)
    batch = _same_batch(training, runtime)
    return {"ours": our_block(training, clock), "theirs": plain_block(training, batch, STEPS, clock)}


def observability(folder: Path, runtime: Runtime) -> Blocks:
    """Return Trainyard's loop with and without observability, on the same weights."""
    full, bare = (make_training(_digits(folder), runtime, folder, bare=bare) for bare in (False, True))
    for training in (full, bare):
        _same_batch(training, runtime)
    # Use the same tensors, as in `plain_block`.
    bare.state, bare.model, bare.data = full.state, full.model, full.data
    return {"ours": our_block(full, time.process_time), "theirs": our_block(bare, time.process_time)}


def wandb(folder: Path, runtime: Runtime) -> Blocks:
    """Return Trainyard's loop with an unreachable Weights & Biases and without it, on the same weights."""
    online, without = (make_training(_digits(folder), runtime, folder / mode, wandb=mode) for mode in ("online", "off"))
    for training in (online, without):
        _same_batch(training, runtime)
    without.state, without.model = online.state, online.model
    return {"ours": our_block(online), "theirs": our_block(without)}


def write_language_texts(folder: Path, tokens: int) -> torch.Tensor:
    """Write one document for each split, so that an epoch predicts `tokens` tokens. Return it as a row of tokens."""
    text = bytes(ord("a") + number * number % 26 for number in range(tokens - 1))
    for split in ("train", "test"):
        (folder / split).mkdir()
        (folder / split / "text.txt").write_bytes(text)
    return torch.tensor([SEPARATOR, *text, SEPARATOR], dtype=torch.int16)


def language_blocks(config: LanguageConfig, folder: Path, *, with_torchtitan: bool) -> Blocks:
    """Return Trainyard's loop and a plain one on the same texts. The plain loop can train torchtitan's model.

    Without torchtitan, both sides use the same weights. On a CPU, the numbers are CPU seconds.
    """
    row = write_language_texts(folder, LANGUAGE_STEPS * config.batch_size * config.context)
    # The runtime determines the precision, so this configuration needs its own.
    runtime = start_runtime(config)
    training = make_training(config, runtime, folder)
    settings = LanguageSettings(
        batch_size=config.batch_size,
        context=config.context,
        learning_rate=config.learning_rate,
        half=runtime.half_dtype() if config.amp else None,
        device=runtime.device.type,
    )
    model: nn.Module = training.model
    optimizer = training.state.optimizer
    if with_torchtitan:
        model = torchtitan_model(config, runtime.device)
        optimizer = build_optimizer(config, optimizer_groups(config, model), betas=BETAS)

    def plain() -> None:
        language_epoch(model, optimizer, row, settings)

    clock = time.process_time if runtime.device.type == "cpu" else time.perf_counter
    return {"ours": our_block(training, clock), "theirs": timed(runtime, plain, clock)}


def _example(folder: Path) -> LanguageConfig:
    """Return a configuration like the example `language`, but with bytes as tokens and fewer samples per step."""
    return LanguageConfig(
        batch_size=LANGUAGE_BATCH,
        context=LANGUAGE_CONTEXT,
        epochs=EPOCHS,
        amp=True,
        data_dir=str(folder),
        bucket="",
        learning_rate=STANDSTILL_LEARNING_RATE,
    )


def variant_config(folder: Path, variant: str) -> LanguageConfig:
    """Return the configuration of a variant on a GPU: 1B parameters, with the vocabulary of Llama 3.

    Both sides of this size fit together into the 80 GB of an H100.
    """
    return dataclasses.replace(
        _example(folder),
        **GPU_VARIANTS[variant],
        preset="1b",
        vocabulary=128_256,
        batch_size=1,
        context=4096,
        device="cuda",
        # The watchdog must not end the process while the other side compiles.
        process_group_timeout=3600.0,
    )


def gpu_language(variant: str, folder: Path, _runtime: Runtime) -> Blocks:
    """Return Trainyard's loop, and torchtitan's model in a plain loop, for a variant on a GPU."""
    return language_blocks(variant_config(folder, variant), folder, with_torchtitan=True)


def references(folder: Path, runtime: Runtime) -> Blocks:
    """Return Trainyard's loop on generated images.

    `ours` has the memory format of the reference scripts, `best` has channels-last memory.
    """
    ours = make_training(CONFIG, runtime, folder)
    best = make_training(dataclasses.replace(CONFIG, channels_last=True), runtime, folder)
    return {"ours": our_block(ours), "best": our_block(best)}


def ranks(folder: Path, runtime: Runtime) -> Blocks:
    """Return a block of ResNet-18 on generated images, with the same global batch for any number of ranks."""
    config = ImagenetConfig(
        arch="resnet18",
        batch_size=GLOBAL_BATCH // runtime.world,
        steps_per_epoch=1,
        epochs=EPOCHS,
        bucket="",
    )
    return {"ours": our_block(make_training(config, runtime, folder))}


def _waits(config: ImagenetConfig, runtime: Runtime, folder: Path) -> Blocks:
    """Return a block that measures the seconds that its steps wait for data, and the seconds of its steps."""
    training = make_training(config, runtime, folder)
    sums: list[tuple[float, float]] = []
    take = training.log.steps.take

    def spy() -> Any:
        times = take()
        sums.append((times.data, times.total))
        return times

    training.log.steps.take = spy  # type: ignore[method-assign]  # also keeps the times that it returns
    epoch = our_block(training)

    def block() -> tuple[float, ...]:
        sums.clear()
        epoch()
        return sum(data for data, _ in sums), sum(total for _, total in sums)

    return {"ours": block}


def generated(folder: Path, runtime: Runtime) -> Blocks:
    """Return a block that measures the wait for generated images, and the time of the steps."""
    config = ImagenetConfig(
        arch="resnet18", image_size=64, num_classes=10, batch_size=32, steps_per_epoch=8, epochs=EPOCHS
    )
    return _waits(config, runtime, folder)


def cache(folder: Path, runtime: Runtime) -> Blocks:
    """Return a block that measures the wait for images from the cache, and the time of the steps."""
    return _waits(_images(folder, data_dir=str(folder / "images"), cache_dir=str(folder / "cache")), runtime, folder)


def bucket(folder: Path, runtime: Runtime) -> Blocks:
    """Return a block that measures the wait for images from a bucket, and the time of the steps."""
    config = _images(folder, data_dir=f"s3://{BUCKET}/images", stream=True)
    in_bucket = Folder(config.data_dir)
    for path in (folder / "images").rglob("*.JPEG"):
        in_bucket.write(str(path.relative_to(folder / "images")), path.read_bytes())
    return _waits(config, runtime, folder)


def _images(folder: Path, **settings: Any) -> ImagenetConfig:
    """Create a folder of images and return a configuration that trains on it."""
    imagenet(folder / "images", classes=4, train=64, tests=1, side=72)
    return ImagenetConfig(
        arch="resnet18", image_size=64, num_classes=4, batch_size=32, epochs=EPOCHS, fake_data=False, **settings
    )


def save(folder: Path, runtime: Runtime) -> Blocks:
    """Return blocks that measure how long a save pauses training: in the background, or until it is complete."""
    config = ImagenetConfig(arch=SAVED_MODEL, image_size=64, num_classes=10, batch_size=8, bucket=f"file://{folder}")
    training = make_training(config, runtime, folder)
    bucket = Folder(f"file://{folder}/saved")
    checkpoints = RunCheckpoints(config, bucket, runtime, training.state, training.report)
    training.checkpoints = checkpoints
    batch = training.data.batch(training.sampler.next(), world=1)
    training.step(batch)
    pause = 0.0
    wait_for_copies = checkpoints.wait_for_copies

    def add_pause() -> None:
        nonlocal pause
        pause += seconds(wait_for_copies)

    checkpoints.wait_for_copies = add_pause  # type: ignore[method-assign]  # times the original

    def in_background() -> tuple[float, ...]:
        nonlocal pause
        pause = seconds(training.save)
        training.step(batch)
        checkpoints.wait()
        return (pause,)

    def in_foreground() -> tuple[float, ...]:
        training.state.step += 1
        place = Folder(f"file://{folder}/foreground")
        found = training.state.capture(runtime)
        writer = TensorFilesWriter(place, found.facts, rank=0, hooks=SaveHooks())
        return (seconds(lambda: save_tensors(dict(found.tensors), storage_writer=writer, no_dist=True)),)

    return {"ours": in_background, "theirs": in_foreground}


def saves(folder: Path, runtime: Runtime) -> Blocks:
    """Return blocks of steps without a save, with a background save, and with torch.save: seconds, number of steps.

    A block has SAVE_STEPS steps, or more until the background save is complete.
    """
    config = ImagenetConfig(arch=SAVED_MODEL, image_size=64, num_classes=10, batch_size=8, bucket=f"file://{folder}")
    training = make_training(config, runtime, folder)
    checkpoints = RunCheckpoints(config, Folder(f"file://{folder}/saved"), runtime, training.state, training.report)
    batch = training.data.batch(training.sampler.next(), world=1)
    is_saved = threading.Event()
    checkpoints.manifest_written = is_saved.set  # type: ignore[method-assign]  # skips the report and deletions

    def steps(save: Callable[[], object]) -> tuple[float, ...]:
        started, count = time.perf_counter(), 0
        save()
        while count < SAVE_STEPS or not is_saved.is_set():
            training.step(batch)
            count += 1
        return time.perf_counter() - started, float(count)

    def without() -> tuple[float, ...]:
        training.checkpoints = None
        is_saved.set()
        return steps(lambda: None)

    def in_background() -> tuple[float, ...]:
        training.checkpoints = checkpoints
        is_saved.clear()
        found = steps(training.save)
        checkpoints.wait()
        return found

    def by_torch() -> tuple[float, ...]:
        training.checkpoints = None
        is_saved.set()
        state = {"model": training.state.model.state_dict(), "optimizer": training.state.optimizer.state_dict()}
        return steps(lambda: torch.save(state, folder / "state.pt"))

    return {"without": without, "ours": in_background, "theirs": by_torch}


def gpu_blocks(config: ImagenetConfig, folder: Path) -> Blocks:
    """Return a block of each side.

    `ours` has the reference scripts' precision. `best` has 16 bits and channels-last memory. `compiled` is `best` with
    torch.compile. `plain` is a hand-written loop on the weights of `best`.
    """
    best = dataclasses.replace(config, amp=True, channels_last=True)
    # The runtime determines the precision, so each precision needs a runtime.
    default_runtime, runtime = start_runtime(config), start_runtime(best)
    ours = make_training(config, default_runtime, folder / "ours")
    fast = make_training(best, runtime, folder / "best")
    compiled = make_training(dataclasses.replace(best, compile=True), runtime, folder / "compiled")
    share = EpochSampler(fast.data.num_samples, rank=0, world=1, batch_size=best.batch_size, seed=0).next()
    plain = plain_block(fast, fast.data.batch(share, world=1), best.steps_per_epoch)
    return {"ours": our_block(ours), "best": our_block(fast), "compiled": our_block(compiled), "plain": plain}


KINDS: dict[str, Callable[[Path, Runtime], Blocks]] = {
    **{
        found.__name__: found
        for found in (observability, wandb, references, ranks, generated, cache, bucket, save, saves)
    },
    # Compare CPU seconds, because other programs on the machine hardly change them.
    "loop": partial(digits, time.process_time),
    "ddp": partial(digits, time.perf_counter),
    "language": lambda folder, _: language_blocks(_example(folder), folder, with_torchtitan=False),
    "torchtitan": lambda folder, _: language_blocks(_example(folder), folder, with_torchtitan=True),
    "gpu": lambda folder, _: gpu_blocks(first_gpu(), folder),
    **{f"gpu_{variant}": partial(gpu_language, variant) for variant in GPU_VARIANTS},
}
"""Kind of benchmark on the command line -> function that builds its blocks."""


def serve(blocks: Blocks, runtime: Runtime) -> None:
    """Run a block for each request, until the input ends."""
    while True:
        name = runtime.broadcast(sys.stdin.readline().strip() if runtime.rank == 0 else "")
        if not name:
            break
        numbers = blocks[name]()
        if runtime.rank == 0:
            print(RESULT, *numbers, flush=True)
    runtime.wait_decision()
    runtime.close()


def main() -> None:
    """Run one rank of a kind of benchmark."""
    kind, folder = sys.argv[1], Path(sys.argv[2])
    runtime = start_runtime(_digits(folder))
    serve(KINDS[kind](folder, runtime), runtime)


if __name__ == "__main__":
    main()
