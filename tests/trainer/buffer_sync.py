"""Evaluate and save on two ranks with different batch statistics: `python -m tests.trainer.buffer_sync digits`."""

from __future__ import annotations

import sys

import torch
from torch import nn

from trainer.checkpoints.state import MODEL, RunState
from trainer.config import DigitsConfig
from trainer.data.datasets import load_data
from trainer.data.sampler import EpochSampler
from trainer.runtime import start_runtime
from trainer.tasks import evaluate


def main() -> None:
    """Print the mean that each rank starts with, evaluates with and saves."""
    config = DigitsConfig(device="cpu")
    runtime = start_runtime(config)
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(28 * 28, 10))
    statistics = model[0].running_mean
    assert isinstance(statistics, torch.Tensor)

    def show(what: str, number: float) -> None:
        # Write once, because the ranks share a pipe.
        sys.stdout.write(f"{what} rank={runtime.rank} mean={number:g}\n")
        sys.stdout.flush()

    def scatter() -> None:
        statistics.fill_(10 + runtime.rank)
        show("scattered", statistics.item())

    scatter()
    evaluate(model, load_data(config, runtime), runtime, lambda: False, gallery=False)
    show("evaluated", statistics.item())
    scatter()
    state = RunState(
        signature="none",
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        sampler=EpochSampler(1, rank=0, world=1, batch_size=1, seed=0),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
    )
    show("captured", state.capture(runtime).tensors[f"{MODEL}0.running_mean"].item())
    runtime.close()


if __name__ == "__main__":
    main()
