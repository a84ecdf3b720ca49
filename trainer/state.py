"""What a checkpoint holds, and how training goes on from it exactly as if it had not stopped."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from trainer.checkpoint import State
from trainer.runtime.base import Runtime
from trainer.sampler import EpochSampler


@dataclass(kw_only=True)
class RunState:
    """Everything that changes while training runs.

    The learning rate is a function of the sampler's place and needs no state of its own.
    """

    signature: str
    """What model and optimiser the tensors belong to."""
    model: nn.Module
    """The model, not wrapped for several ranks."""
    optimizer: torch.optim.Optimizer
    """The optimiser of the model's weights."""
    sampler: EpochSampler
    """Where in which epoch training stands."""
    step: int = 0
    """Optimiser steps so far, over all restarts."""
    test_accuracy: float = 0.0
    """Accuracy of the last evaluation, in percent."""
    best_accuracy: float = 0.0
    """Highest accuracy of an evaluation so far, in percent."""

    def capture(self, runtime: Runtime) -> State:
        """The state to save; every rank must call this, for each adds its own random number generator."""
        on_cuda = runtime.device.type == "cuda"
        return {
            "signature": self.signature,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.place(),
            "step": self.step,
            "test_accuracy": self.test_accuracy,
            "best_accuracy": self.best_accuracy,
            "random": runtime.gather(torch.get_rng_state()),
            "random_cuda": runtime.gather(torch.cuda.get_rng_state()) if on_cuda else [],
        }

    def restore(self, saved: State, runtime: Runtime, *, seed: int) -> None:
        """Go on from a saved state, also with another number of ranks or on another device."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.sampler.go_to(saved["sampler"])
        self.step = saved["step"]
        self.test_accuracy, self.best_accuracy = saved["test_accuracy"], saved["best_accuracy"]
        if len(saved["random"]) == runtime.world:
            torch.set_rng_state(saved["random"][runtime.rank])
        else:
            torch.manual_seed(seed + self.step * runtime.world + runtime.rank)
        if runtime.device.type == "cuda" and len(saved["random_cuda"]) == runtime.world:
            torch.cuda.set_rng_state(saved["random_cuda"][runtime.rank])
