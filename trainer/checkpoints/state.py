"""What a checkpoint holds, and how training goes on from it exactly as if it had not stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import nn

from trainer.checkpoints.checkpoint import Saved
from trainer.checkpoints.copies import Tensors
from trainer.data.sampler import EpochSampler
from trainer.runtime.base import Runtime

COUNTS = ("step", "world")
MEASURES = ("test_accuracy", "best_accuracy", "began", "useful_seconds")
FACTS = frozenset(("signature", "sampler", *COUNTS, *MEASURES))
"""What a checkpoint must hold beside tensors: two names of things, counts, and numbers that are finite."""
LARGEST_NUMBER = 2**42
"""More than any of these numbers is; and seeds of epochs that are made from it are numbers of 64 bits."""
MODEL, OPTIMIZER, RANDOM, RANDOM_CUDA = "model.", "optimizer.", "random.", "random_cuda."
"""What the names of a checkpoint's tensors start with; a rank's number follows the last two."""


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
    scaler: torch.amp.GradScaler
    """What losses are multiplied with in float16; empty of state for all other types."""
    step: int = 0
    """Optimiser steps so far, over all restarts."""
    test_accuracy: float = 0.0
    """Accuracy of the last evaluation, in percent."""
    best_accuracy: float = 0.0
    """Highest accuracy of an evaluation so far, in percent."""
    began: float = field(default_factory=time.time)
    """When the run began, before its first restart, in seconds since 1970."""
    useful_seconds: float = 0.0
    """Time of the steps that led here, over all restarts."""

    def capture(self, runtime: Runtime) -> Saved:
        """The state to save, the same on all ranks but for their random numbers; all ranks must call it.

        What only the optimiser changes is the live tensor: copy it before the next update.
        """
        runtime.level(self.model)
        buffers = {name for name, _ in self.model.named_buffers()}
        tensors = {
            # A forward pass changes these.
            MODEL + name: tensor.clone() if name in buffers else tensor
            for name, tensor in self.model.state_dict().items()
        }
        for name, parameter in self.model.named_parameters():
            for key, tensor in self.optimizer.state.get(parameter, {}).items():
                if isinstance(tensor, torch.Tensor):
                    tensors[f"{OPTIMIZER}{key}.{name}"] = tensor
        tensors = runtime.on_host(tensors)
        tensors[f"{RANDOM}{runtime.rank}"] = torch.get_rng_state()
        if runtime.device.type == "cuda":
            tensors[f"{RANDOM_CUDA}{runtime.rank}"] = torch.cuda.get_rng_state()
            torch.cuda.synchronize()
        facts = {
            "signature": self.signature,
            "step": self.step,
            "world": runtime.world,
            "sampler": self.sampler.place(),
            "scaler": self.scaler.state_dict(),
            "test_accuracy": self.test_accuracy,
            "best_accuracy": self.best_accuracy,
            "began": self.began,
            "useful_seconds": self.useful_seconds,
        }
        return Saved(tensors=tensors, facts=facts)

    def fits(self, saved: Saved) -> None:
        """Raises ValueError where a checkpoint is of another model or optimiser, or lacks what a run goes on from."""
        if missing := sorted(FACTS - saved.facts.keys()):
            raise ValueError(f"it says nothing of {missing[0]}")
        found = saved.facts["signature"]
        if found != self.signature:
            raise ValueError(f"it is of {found}, not {self.signature}")
        for name in (*COUNTS, *MEASURES):
            _check_number(name, saved.facts[name], whole=name in COUNTS)
        mine = {MODEL + name: _kind(tensor) for name, tensor in self.model.state_dict().items()}
        theirs = {name: _kind(tensor) for name, tensor in saved.tensors.items() if name.startswith(MODEL)}
        different = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        if different:
            raise ValueError(f"{different[0].removeprefix(MODEL)} has another shape or type, or is missing")
        self._fits_optimizer(_under(OPTIMIZER, saved.tensors))
        for name, tensor in _under(RANDOM, saved.tensors).items():
            if _kind(tensor) != _kind(torch.get_rng_state()):
                raise ValueError(f"the random numbers of rank {name} are none of this torch")
        place = saved.facts["sampler"]
        for name in place:
            _check_number(name, place[name], whole=True)
        if place["position"] > place["num_samples"] or not place["num_samples"]:
            raise ValueError(f"{place} is no place in the data")

    def _fits_optimizer(self, tensors: Tensors) -> None:
        """Raises ValueError for what no optimiser keeps: of every weight that it updates it keeps the same."""
        weights = dict(self.model.named_parameters())
        keys: dict[str, set[str]] = {}
        for name, tensor in tensors.items():
            key, _, weight = name.partition(".")
            if weight not in weights:
                raise ValueError(f"it has an optimiser's state of {weight}, which is no weight")
            if _kind(tensor) not in (_kind(weights[weight]), _kind(torch.zeros(()))):
                raise ValueError(f"the optimiser's {key} of {weight} has another shape or type")
            keys.setdefault(weight, set()).add(key)
        for weight, found in keys.items():
            if missing := set().union(*keys.values()) - found:
                raise ValueError(f"the optimiser's {min(missing)} of {weight} is missing")

    @torch.no_grad()
    def restore(self, saved: Saved, runtime: Runtime, *, seed: int) -> None:
        """Go on from a saved state, also with another number of ranks or on another device."""
        tensors, facts = saved.tensors, saved.facts
        self.model.load_state_dict(_under(MODEL, tensors))
        of_optimizer = self.optimizer.state_dict()
        numbers = {id(parameter): number for number, parameter in enumerate(self._parameters())}
        of_optimizer["state"] = {}
        weights = dict(self.model.named_parameters())
        for name, tensor in _under(OPTIMIZER, tensors).items():
            key, _, weight_name = name.partition(".")
            weight = weights[weight_name]
            if tensor.shape == weight.shape:
                # In the weight's own memory format: the fused update walks through both side by side.
                tensor = torch.empty_like(weight).copy_(tensor)
            of_optimizer["state"].setdefault(numbers[id(weight)], {})[key] = tensor
        self.optimizer.load_state_dict(of_optimizer)
        self.sampler.go_to(facts["sampler"])
        if self.scaler.is_enabled() and facts.get("scaler"):
            self.scaler.load_state_dict(facts["scaler"])
        self.step = facts["step"]
        self.test_accuracy, self.best_accuracy = facts["test_accuracy"], facts["best_accuracy"]
        self.began, self.useful_seconds = facts["began"], facts["useful_seconds"]
        of_cpu = tensors.get(f"{RANDOM}{runtime.rank}")
        if facts["world"] == runtime.world and of_cpu is not None:
            torch.set_rng_state(of_cpu)
        else:
            torch.manual_seed(seed + self.step * runtime.world + runtime.rank)
        of_cuda = tensors.get(f"{RANDOM_CUDA}{runtime.rank}")
        if runtime.device.type == "cuda" and facts["world"] == runtime.world and of_cuda is not None:
            torch.cuda.set_rng_state(of_cuda)

    def _parameters(self) -> list[torch.Tensor]:
        """The weights in the order in which the optimiser numbers them."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def _under(start: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _check_number(name: str, value: object, *, whole: bool) -> None:
    """Raise ValueError for what is no number that a run can have."""
    if not isinstance(value, int if whole else int | float) or not 0 <= value <= LARGEST_NUMBER:
        raise ValueError(f"its {name} is {value!r}")
