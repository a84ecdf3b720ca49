"""The components of a training run, built from its flags: data, model and state."""

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

MAX_LISTED = 10
"""Most unreadable samples that are reported one by one."""


class Components(NamedTuple):
    """Everything that a rank trains with."""

    data: Data
    """The training set and the test set."""
    state: RunState
    """The bare model, its optimiser and all other state that changes."""
    model: nn.Module
    """The model that steps call. Its gradients are averaged over all ranks."""


def build_components(config: DigitsConfig | ImagenetConfig, runtime: Runtime, report: Reporter) -> Components:
    """Report the run's settings and build its components. Raises ConfigurationError or DataError."""
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
    check_same_data(data, runtime)
    report_unreadable(data, report)
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
        # Has an effect for float16 only, where small gradients would become zero.
        scaler=torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == torch.float16),
    )
    if config.compile:
        # Compile the bare model: torch does not compile the wrapper of a model whose code is part of torch.
        # The compiler still splits the kernels where DistributedDataParallel splits the gradients.
        model.compile()
    return Components(data, state, runtime.wrap(model))


def check_same_data(data: Data, runtime: Runtime) -> None:
    """Raise DataError if the ranks have different data, because their shares would not belong together."""
    own = {"training samples": data.num_samples, "test samples": data.num_tests, "classes": data.classes}
    first, *others = runtime.gather(own)
    for rank, other in enumerate(others, start=1):
        for name, count in other.items():
            if count != first[name]:
                raise DataError(
                    f"rank {rank} has {count} {name}, and rank 0 has {first[name]}; allowed is the same data on all "
                    "hosts: make --data-dir the same there"
                )


def report_unreadable(data: Data, report: Reporter, *, reported: int = 0) -> int:
    """Report the unreadable samples after the first `reported`, and return how many there are now."""
    broken = data.broken
    for text in broken[reported:][:MAX_LISTED]:
        report.event("broken", sample="_".join(text.split()))
    if len(broken) > reported:
        report.event("broken_samples", count=len(broken))
    return len(broken)
