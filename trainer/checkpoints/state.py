"""The state of a run: capture and restore it, save it while the run holds its lease, and resume from it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from trainer.checkpoints.checkpoint import Checkpoints, SavedState, checkpoint_name
from trainer.config import TrainConfig
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import ConfigurationError, diverged
from trainer.reporter import Reporter, node_name
from trainer.runtime import Runtime
from trainer.storage import Folder, MissingFileError, checkpoints_folder

MODEL, OPTIMIZER, RANDOM, RANDOM_CUDA = "model.", "optimizer.", "random.", "random_cuda."
"""Prefixes of tensor names in a checkpoint. The rank's number follows the last two."""
LEASE_FILE = "owner"
"""File with the token of the run that holds the lease."""


@dataclass(kw_only=True)
class RunState:
    """State of a run that a checkpoint saves. The sampler's position determines the learning rate, so none is saved."""

    signature: str
    """Model and optimizer that the tensors belong to."""
    model: nn.Module
    """The model, not wrapped for several ranks."""
    optimizer: torch.optim.Optimizer
    """The optimizer of the model's weights."""
    sampler: EpochSampler
    """The position of training in the epochs."""
    scaler: torch.amp.GradScaler
    """The loss scaler for float16. For other types it has no state."""
    step: int = 0
    """Optimizer steps so far, over all restarts."""
    model_facts: dict[str, Any] = field(default_factory=dict)
    """Facts about the model that an export needs."""
    results: dict[str, float] = field(default_factory=dict)
    """The recipe's main measure of the last and of the best evaluation, by name."""
    began: float = field(default_factory=time.time)
    """Time of the run's first start, in seconds since 1970. Restarts do not change it."""
    useful_seconds: float = 0.0
    """Seconds of all steps up to this state, without waits for data, over all restarts."""

    def capture(self, runtime: Runtime) -> SavedState:
        """Return the state to save. All ranks must call this: each returns its own random state and shards.

        Does not copy tensors that only the optimizer changes. The caller must copy them before the next update.
        """
        runtime.sync_buffers(self.model)
        buffers = {name for name, _ in self.model.named_buffers()}
        tensors = {
            # A forward pass changes buffers.
            MODEL + name: tensor.clone() if name in buffers else tensor
            for name, tensor in self._model_tensors()
        }
        for name, parameter in self.model.named_parameters():
            for key, tensor in self.optimizer.state.get(parameter, {}).items():
                if isinstance(tensor, torch.Tensor):
                    tensors[f"{OPTIMIZER}{key}.{name}"] = tensor
        tensors = runtime.to_host(tensors)
        tensors[f"{RANDOM}{runtime.rank}"] = torch.get_rng_state()
        if runtime.device.type == "cuda":
            tensors[f"{RANDOM_CUDA}{runtime.rank}"] = torch.cuda.get_rng_state()
            torch.cuda.synchronize()
        facts = {
            "signature": self.signature,
            "model": self.model_facts,
            "step": self.step,
            "world": runtime.world,
            "sampler": self.sampler.state(),
            "scaler": self.scaler.state_dict(),
            "results": self.results,
            "began": self.began,
            "useful_seconds": self.useful_seconds,
        }
        return SavedState(tensors=tensors, facts=facts)

    def check_compatible(self, saved: SavedState) -> None:
        """Raise ValueError if a checkpoint belongs to another model or optimizer."""
        found = saved.facts["signature"]
        if found != self.signature:
            raise ValueError(f"it belongs to {found}, not {self.signature}")
        own = {(MODEL + name, tensor.shape, tensor.dtype) for name, tensor in self._model_tensors()}
        others = {(name, tensor.shape, tensor.dtype) for name, tensor in saved.tensors.items()}
        different = sorted(name.removeprefix(MODEL) for name, _, _ in own ^ others if name.startswith(MODEL))
        if different:
            raise ValueError(f"{different[0]} has another shape or type, or is missing in the model or the checkpoint")

    @torch.no_grad()
    def restore(self, saved: SavedState, runtime: Runtime, *, seed: int) -> None:
        """Restore a saved state. The number of ranks and the device may differ."""
        tensors, facts = saved.tensors, saved.facts
        for name, tensor in self._model_tensors():
            runtime.restore(tensor, tensors[MODEL + name])
        optimizer_state = self.optimizer.state_dict()
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        optimizer_state["state"] = {}
        weights = dict(self.model.named_parameters())
        for name, tensor in tensors.items():
            if not name.startswith(OPTIMIZER):
                continue
            key, _, weight_name = name.removeprefix(OPTIMIZER).partition(".")
            weight = weights[weight_name]
            if tensor.shape == weight.shape:
                # Use the weight's memory format: the fused update needs the same layout for both.
                restored = torch.empty_like(weight)
                runtime.restore(restored, tensor)
                tensor = restored
            optimizer_state["state"].setdefault(numbers[id(weight)], {})[key] = tensor
        self.optimizer.load_state_dict(optimizer_state)
        self.sampler.load_state(facts["sampler"])
        if self.scaler.is_enabled() and facts.get("scaler"):
            self.scaler.load_state_dict(facts["scaler"])
        self.step = facts["step"]
        self.results = dict(facts["results"])
        self.began, self.useful_seconds = facts["began"], facts["useful_seconds"]
        torch.manual_seed(seed + self.step * runtime.world + runtime.rank)
        own = tensors if facts["world"] == runtime.world else {}
        if (cpu_state := own.get(f"{RANDOM}{runtime.rank}")) is not None:
            torch.set_rng_state(cpu_state)
        if runtime.device.type == "cuda" and (cuda_state := own.get(f"{RANDOM_CUDA}{runtime.rank}")) is not None:
            torch.cuda.set_rng_state(cuda_state)

    def sharded_like(self, name: str, runtime: Runtime) -> torch.Tensor | None:
        """Return a tensor with the sharding that the saved tensor `name` must have on this rank, or None."""
        kind, _, rest = name.partition(".")
        weight_name = rest.partition(".")[2] if f"{kind}." == OPTIMIZER else rest
        weight = dict(self.model.named_parameters()).get(weight_name)
        return None if weight is None else runtime.host_like(weight)

    def _model_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each tensor of the model that training changes, with the first of its names."""
        seen: set[int] = set()
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            is_fixed = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
            if id(tensor) not in seen and not is_fixed:
                seen.add(id(tensor))
                yield name, tensor.detach()


class RunLease:
    """This run's claim on its folder, valid until another run acquires the folder."""

    def __init__(self, folder: Folder, node: str) -> None:
        self._folder = folder
        self._token = f"{uuid.uuid4().hex} {node}".encode()

    def acquire(self) -> None:
        """Acquire the folder. After this, an earlier run that is still running cannot save."""
        self._folder.write(LEASE_FILE, self._token)

    def verify(self) -> None:
        """Raise ConfigurationError if another run has acquired the folder."""
        try:
            found = self._folder.read(LEASE_FILE)
        except MissingFileError:  # A user removed the file: another run would have replaced it.
            return
        if found != self._token:
            node = found.decode(errors="replace").partition(" ")[2]
            raise ConfigurationError(
                f"{self._folder.url} was acquired by a run that started later, on {node}; a job must have only one "
                "run at a time: stop one of the two runs, or start one with another --job"
            )


class RunCheckpoints(Checkpoints):
    """The checkpoints of a run's state in a bucket."""

    def __init__(
        self, config: TrainConfig, bucket: Folder, runtime: Runtime, state: RunState, report: Reporter
    ) -> None:
        super().__init__(
            checkpoints_folder(bucket, config.job), runtime, keep=config.keep_checkpoints, keep_hours=config.keep_hours
        )
        self._config, self._state, self._report = config, state, report
        self._lease = RunLease(bucket.child(config.job), node_name())

    def save_state(self) -> None:
        """Start to save the current state."""
        if self.folder.is_local:
            # Wait for the lines of earlier steps: a run that resumes from this checkpoint does not write them again.
            self._report.sync()
        self.save(self._state.step, self._state.capture(self._runtime))

    def resume(self) -> None:
        """Resume from the newest usable checkpoint, if there is one."""
        if self._runtime.rank == 0:
            # Acquire the lease before looking for checkpoints, so that an earlier run can no longer save another one.
            self._lease.acquire()

        def skipped(name: str, reason: str) -> None:
            self._report.event("checkpoint_skipped", path=name, reason=reason.replace(" ", "_"))

        saved = self.load_newest(
            check_compatible=self._state.check_compatible,
            skipped=skipped,
            sharded_like=lambda name: self._state.sharded_like(name, self._runtime),
        )
        if saved is None:
            return
        self._state.restore(saved, self._runtime, seed=self._config.seed)
        epoch = self._state.sampler.epoch + 1
        self._report.event("resume", step=self._state.step, epoch=epoch, path=self.folder.url)

    def verify_lease(self) -> None:
        self._lease.verify()

    def manifest_written(self) -> None:
        """Report the new checkpoint and delete old ones."""
        step, seconds = self.saving_step, time.monotonic() - self.saving_since
        self._report.event("checkpoint", step=step, path=self.folder.child(checkpoint_name(step)).url, seconds=seconds)
        super().manifest_written()

    def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Raise DivergedError if a weight is not finite. The last update can break a weight after a finite loss."""
        # A sum is not finite if a value is not. Computing it takes a tenth of the time of checking each value.
        wide = torch.promote_types(tensor.dtype, torch.float32)
        if name.startswith(MODEL) and tensor.is_floating_point() and not tensor.sum(dtype=wide).isfinite():
            raise diverged(self.saving_step, self._config.learning_rate)
