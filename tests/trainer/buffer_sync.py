"""Evaluate and capture a model whose batch statistics differ between two ranks.

Each rank runs `python -m tests.trainer.buffer_sync` and ignores its arguments. The digits are in $TRAINYARD_DATA.
"""

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
    """Print the running mean of each rank: before an evaluation, after it, and in the captured state."""
    config = DigitsConfig(device="cpu")
    runtime = start_runtime(config)
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(28 * 28, 10))
    running_mean = model[0].running_mean
    assert isinstance(running_mean, torch.Tensor)

    def show(event: str, mean: float) -> None:
        # One write, because the ranks share a pipe. `print` would write the newline separately.
        sys.stdout.write(f"{event} rank={runtime.rank} mean={mean:g}\n")
        sys.stdout.flush()

    def set_rank_mean() -> None:
        running_mean.fill_(10 + runtime.rank)
        show("set", running_mean.item())

    set_rank_mean()
    evaluate(model, load_data(config, runtime), runtime, lambda: False, gallery=False)
    show("evaluated", running_mean.item())
    set_rank_mean()
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
