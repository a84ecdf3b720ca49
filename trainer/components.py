"""The parts of a training run, made from its flags: data, model, and the state that checkpoints hold."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from trainer.checkpoints.state import RunState
from trainer.config import DigitsConfig, ImagenetConfig, recipe
from trainer.data.batch import Data
from trainer.data.datasets import load_data
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import DataError
from trainer.models import build_model, build_optimizer, signature
from trainer.report.metrics import Reporter, node_name
from trainer.runtime import Runtime

LONGEST_LIST = 10
"""Broken samples that are named one by one."""


class Parts(NamedTuple):
    """What a rank trains with."""

    data: Data
    """The training set and the test set."""
    state: RunState
    """The bare model, its optimiser and all else that changes."""
    model: nn.Module
    """The model as steps call it: its gradients are those of all ranks."""


def build_parts(config: DigitsConfig | ImagenetConfig, runtime: Runtime, report: Reporter) -> Parts:
    """Say what will be trained where, and make it; raises ConfigurationError or DataError where it cannot be."""
    report.event(
        "start",
        node=node_name(),
        device=runtime.device.type,
        threads=torch.get_num_threads(),
        precision=str(runtime.precision).removeprefix("torch."),
        recipe=recipe(config),
        model=signature(config),
    )
    torch.manual_seed(config.seed)
    data = runtime.feed(load_data(config, runtime))
    check_alike(data, runtime)
    name_broken(data, report)
    model = build_model(config, classes=data.classes, channels=data.channels).to(runtime.device)
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)
    sampler = EpochSampler(
        data.num_samples, rank=runtime.rank, world=runtime.world, batch_size=config.batch_size, seed=config.seed
    )
    data.follow(sampler)
    state = RunState(
        signature=signature(config),
        model=model,
        optimizer=build_optimizer(config, model),
        sampler=sampler,
        # Does nothing but for float16, whose gradients would vanish.
        scaler=torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == torch.float16),
    )
    if config.compile:
        # Not what `wrap` gives: of that torch compiles only models whose own code is outside of torch. It cuts the
        # kernels where DistributedDataParallel cuts the gradients all the same.
        model.compile()
    return Parts(data, state, runtime.wrap(model))


def check_alike(data: Data, runtime: Runtime) -> None:
    """Raises DataError where the ranks do not have the same data: each would take its share of something else."""
    mine = {"training samples": data.num_samples, "test samples": data.num_tests, "classes": data.classes}
    first, *others = runtime.gather(mine)
    for rank, other in enumerate(others, start=1):
        for name, count in other.items():
            if count != first[name]:
                raise DataError(
                    f"rank {rank} has {count} {name}, and rank 0 has {first[name]}; allowed is the same data on all "
                    "hosts: make --data-dir the same there"
                )


def name_broken(data: Data, report: Reporter, *, named: int = 0) -> int:
    """Say which samples cannot be read, besides those `named` before; returns how many there are now."""
    broken = data.broken
    for text in broken[named:][:LONGEST_LIST]:
        report.event("broken", sample="_".join(text.split()))
    if len(broken) > named:
        report.event("broken_samples", count=len(broken))
    return len(broken)
