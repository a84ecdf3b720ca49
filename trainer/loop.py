"""The training loop: resume, step, log, evaluate, save. Start reading here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from trainer.checkpoint import Checkpoints, load_state
from trainer.config import DigitsConfig, ImagenetConfig, TrainConfig, recipe
from trainer.data import Batch, Data, load_data
from trainer.exit_codes import DivergedError, PreemptedError
from trainer.metrics import Meter, Reporter, node_name
from trainer.models import build_model, build_optimizer, model_name
from trainer.run_state import RunState
from trainer.runtime import Runtime
from trainer.runtime.base import Verdict
from trainer.sampler import EpochSampler
from trainer.storage import Folder


def train(config: DigitsConfig | ImagenetConfig, runtime: Runtime, told_to_leave: Callable[[], bool]) -> None:
    """Train to the end of the last epoch, from the newest checkpoint on where there is one."""
    folder = Folder(config.bucket).child(config.job) if config.bucket else None
    report = Reporter(runtime, folder)
    try:
        Training(config, runtime, report, folder, told_to_leave).run()
    finally:
        report.close()


class Training:
    """A training run on one rank."""

    def __init__(
        self,
        config: DigitsConfig | ImagenetConfig,
        runtime: Runtime,
        report: Reporter,
        folder: Folder | None,
        told_to_leave: Callable[[], bool],
    ) -> None:
        torch.manual_seed(config.seed)
        self.config, self.runtime, self.report, self.told_to_leave = config, runtime, report, told_to_leave
        self.data: Data = load_data(config, runtime.device, rank=runtime.rank, world=runtime.world)
        model = build_model(config, classes=self.data.classes, channels=self.data.channels).to(runtime.device)
        if config.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        self.optimizer = build_optimizer(config, model)
        self.sampler = EpochSampler(
            self.data.num_samples,
            rank=runtime.rank,
            world=runtime.world,
            batch_size=config.batch_size,
            seed=config.seed,
        )
        self.state = RunState(model, self.optimizer, self.sampler, runtime, model_name(config))
        self.checkpoints = Checkpoints(folder.child("checkpoints"), keep=config.keep_checkpoints) if folder else None
        self.state.announce(report, config, threads=torch.get_num_threads(), node=node_name())
        self.state.resume(self.checkpoints, report)
        self.model = runtime.wrap(model)
        self.meter = Meter(runtime.device)
