"""Trainyard's side on a GPU: the default loop, the fastest settings, compiled, and a plain loop on the same tensors.

`python -m bench.gpu_rank KIND FOLDER` takes a block for each request, as bench.trainer_rank does.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

from bench.ddp_step import plain_block
from bench.reference_loops import first_gpu, settle
from bench.trainer_rank import Blocks, make_training, seconds, serve
from trainer.config import ImagenetConfig
from trainer.data.sampler import EpochSampler
from trainer.loop import Training
from trainer.runtime import Runtime, start_runtime


def blocks(config: ImagenetConfig, folder: Path) -> Blocks:
    """Return an epoch of each side by name.

    `ours` has the reference scripts' default precision, `best` the fastest one.
    """
    best = dataclasses.replace(config, amp=True, channels_last=True)
    # The runtime determines the precision, so each precision needs a runtime.
    runtimes = {each: start_runtime(each) for each in (config, best)}
    ours = make_training(config, runtimes[config], folder / "ours")
    fast = make_training(best, runtimes[best], folder / "best")
    compiled = make_training(dataclasses.replace(best, compile=True), runtimes[best], folder / "compiled")
    return {
        "ours": _timed(ours),
        "best": _timed(fast),
        "compiled": _timed(compiled),
        "plain": _plain(fast, best, runtimes[best]),
    }


def _timed(training: Training) -> Callable[[], tuple[float, ...]]:
    def block() -> tuple[float, ...]:
        return (_seconds(training.runtime, training.train_epoch, training.sampler.next_epoch),)

    return block


def _plain(training: Training, config: ImagenetConfig, runtime: Runtime) -> Callable[[], tuple[float, ...]]:
    """Return a hand-written loop on the weights and images of this training."""
    data = training.data
    share = EpochSampler(data.num_samples, rank=0, world=1, batch_size=config.batch_size, seed=0).next()
    batch = data.batch(share, world=1)
    model, optimizer = training.model, training.state.optimizer

    def block() -> tuple[float, ...]:
        return (_seconds(runtime, lambda: plain_block(model, optimizer, batch, config, runtime)),)

    return block


def _seconds(runtime: Runtime, *work: Callable[[], object]) -> float:
    """Return the seconds that the device needs for the work."""
    settle(runtime.device)

    def all_of_it() -> None:
        for part in work:
            part()
        settle(runtime.device)

    return seconds(all_of_it)


def main() -> None:
    """Take blocks until the input ends."""
    config = first_gpu()
    serve(blocks(config, Path(sys.argv[2])), start_runtime(config))


if __name__ == "__main__":
    main()
