"""XLA through PyTorch/XLA: one program over all devices of a process (SPMD), or one process for each device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

from trainer.bucket_layout import profiles_of
from trainer.config import TrainConfig
from trainer.data.batch import Batch, Data
from trainer.exit_codes import ConfigurationError
from trainer.runtime.base import Runtime, Verdict
from trainer.runtime.tpu_hosts import meeting
from trainer.storage import Folder

if TYPE_CHECKING:
    from trainer.runtime.profile import StepProfile

try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as xla_metrics
    import torch_xla.debug.profiler as xp
    import torch_xla.runtime as xr
    from torch_xla._internal import pjrt
except ImportError as error:
    raise ConfigurationError(
        f"device is 'xla'; allowed is 'cpu', 'cuda' or 'auto' here ({error}): use the image of trainer/Dockerfile.xla, "
        "and leave $PJRT_DEVICE out elsewhere"
    ) from error

LEAST_RATE = 1e-12
"""Lowest learning rate."""


def start_xla(config: TrainConfig) -> XlaRuntime:
    """The devices of this process, and the other processes; raises ConfigurationError where there are none.

    torchrun starts a process for each device. A process that it did not start has all devices of its host.
    """
    if config.compile:
        raise ConfigurationError("compile is True; allowed is False on XLA, which compiles every step: leave it out")
    if dist.is_torchelastic_launched():
        return ReplicaRuntime(config)
    os.environ.update(meeting(os.environ))
    return SpmdRuntime(config)


class XlaRuntime(Runtime):
    """A process with XLA devices. Operations are noted down and compiled; nothing waits for them but what is said."""

    backend = "gloo"
    metrics_lag = 2

    def take_device(self, config: TrainConfig) -> None:
        """Take what $PJRT_DEVICE names."""
        if config.threads:
            torch.set_num_threads(config.threads)
        self._config = config
        self._compiled_elsewhere = 0
        self._name_devices()
        try:
            self.device = torch_xla.device()
        except RuntimeError as error:
            raise ConfigurationError(
                f"PJRT_DEVICE is {os.environ.get('PJRT_DEVICE')!r}; allowed is a device of this host, such as CPU or "
                f"TPU: {str(error).splitlines()[0]}"
            ) from error
        if config.profile_port:
            # Kept: the server ends with the object.
            self._server = xp.start_server(config.profile_port + self.local_rank, only_on_master=False)

    def _name_devices(self) -> None:
        """Say which of the host's devices are this process's, before the first is touched."""
        raise NotImplementedError

    def half(self) -> torch.dtype | None:
        """bfloat16, which TPUs multiply in."""
        return torch.bfloat16

    @property
    def feed_device(self) -> torch.device:
        """Batches are made on the host, beside the steps."""
        return torch.device("cpu")

    @property
    def scores_device(self) -> torch.device:
        """Counting leaves out what has no label, so that shapes change: on the device each would be another graph."""
        return torch.device("cpu")

    def feed(self, data: Data) -> Data:
        """The data with its batches sent ahead."""
        from trainer.runtime.xla_feed import AheadOnDevice

        return AheadOnDevice(data, self, batch_size=self._config.batch_size)

    def even(self, samples: int) -> int:
        """So many samples or a few more, as the devices of this process can share."""
        return samples

    def most(self, count: int) -> int:
        """The highest of all ranks' counts."""
        if self.world == 1:
            return count
        counts = torch.tensor([count])
        dist.all_reduce(counts, dist.ReduceOp.MAX)
        return int(counts.item())

    def scale(self, scale: float) -> torch.Tensor:
        """What to multiply the sum of losses with, given what each of several ranks would; on the device."""
        return self._number(scale)

    def send(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels on the device."""
        images, labels = xm.send_cpu_data_to_device([images, labels], self.device)
        return images, labels

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is: gradients are averaged by `exchange`."""
        return model

    @contextmanager
    def training(self, step: int) -> Iterator[None]:
        """One step is one graph, and one span of a profile."""
        with xp.StepTrace("train_step", step_num=step):
            yield

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """No gradients; XLA knows no inference mode. Graphs of the evaluation are no steps'."""
        with torch.no_grad(), self._elsewhere():
            yield

    def set_rate(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        """Set the learning rate, as a tensor: a number would be part of the graph."""
        # Adam with its state on the device divides by the rate. SGD takes a tensor for what it is only where that has
        # a gradient, else it waits for its value (torch/optim/sgd.py).
        number = self._number(max(rate, LEAST_RATE)).requires_grad_(isinstance(optimizer, torch.optim.SGD))
        for group in optimizer.param_groups:
            group["lr"] = number

    def hand_over(self) -> None:
        """End the graph here."""
        torch_xla.sync()

    def told(self, *, mine: bool) -> bool:
        """Whether a rank was told to leave; all ask equally often, for their batches are all of one graph."""
        return self.vote(Verdict.LEAVE if mine else Verdict.GO_ON) == Verdict.LEAVE

    def level(self, model: nn.Module) -> None:
        """Give all ranks rank 0's buffers; their graphs are no steps'."""
        with self._elsewhere():
            super().level(model)
            torch_xla.sync()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over all ranks, on the host."""
        return super().sum(values.cpu())

    def on_host(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies in the host's memory."""
        with self._elsewhere():
            torch_xla.sync()
            return {name: tensor.detach().cpu() for name, tensor in tensors.items()}

    def counts(self) -> dict[str, int]:
        """How many graphs the training steps have compiled."""
        return {"compilations": _compiled() - self._compiled_elsewhere}

    def step_profile(self, config: TrainConfig, first: int, last: int) -> StepProfile:
        """XLA's own profiler; a folder for each process, so that none is made by two at once."""
        from trainer.runtime.xla_profile import XlaStepProfile

        folder = profiles_of(Folder(config.bucket), config.job).child(f"proc_{self.rank}")
        return XlaStepProfile(folder, first, last)

    def _number(self, value: float) -> torch.Tensor:
        (number,) = xm.send_cpu_data_to_device([torch.tensor(value)], self.device)
        assert isinstance(number, torch.Tensor)
        return number

    @contextmanager
    def _elsewhere(self) -> Iterator[None]:
        before = _compiled()
        try:
            yield
        finally:
            self._compiled_elsewhere += _compiled() - before


class SpmdRuntime(XlaRuntime):
    """One process a host: every host runs the same program, which is cut up for all devices of all hosts."""

    def _name_devices(self) -> None:
        """Before the first tensor: from then on all devices are one."""
        xr.use_spmd()

    def take_device(self, config: TrainConfig) -> None:
        """Lay all devices out in meshes."""
        super().take_device(config)
        from trainer.runtime.spmd import Meshes

        self._local_devices: int = xr.addressable_runtime_device_count()
        devices = xr.global_runtime_device_count()
        self._meshes = Meshes(devices) if devices > 1 else None

    def even(self, samples: int) -> int:
        """A multiple of the number of this host's devices."""
        return -(-samples // self._local_devices) * self._local_devices

    def scale(self, scale: float) -> torch.Tensor:
        """The sum is that of all hosts already."""
        return self._number(scale / self.world)

    def send(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """This host's samples, as its devices' part of the batch of all hosts."""
        if self._meshes is None:
            return super().send(images, labels)
        (sent_images,) = xm.send_cpu_data_to_device([images], self.device, self._meshes.images)
        (sent_labels,) = xm.send_cpu_data_to_device([labels], self.device, self._meshes.labels)
        return sent_images, sent_labels

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with its weights spread over the devices, where that was asked for."""
        if self._meshes and self._config.sharding == "model":
            self._meshes.spread(model)
        return model

    def level(self, model: nn.Module) -> None:
        """Nothing: every host has the statistics of the whole batch."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The values as they are: every host has those of the whole batch."""
        return values.cpu()

    def shardings(self, model: nn.Module, batch: Batch) -> dict[str, str]:
        """How the batch and each weight lie on the devices."""
        if self._meshes is None:
            return {}
        from trainer.runtime.spmd import sharding

        tensors = {"images": batch.images, "labels": batch.labels, **dict(model.named_parameters())}
        return {name: sharding(tensor) for name, tensor in tensors.items()}


class ReplicaRuntime(XlaRuntime):
    """One process a device, started by torchrun."""

    def _name_devices(self) -> None:
        """One chip of the host; see pytorch/xla's own launcher, of which this is the part that torchrun leaves."""
        pjrt.initialize_multiprocess(self.local_rank, self.local_world)

    def exchange(self, model: nn.Module) -> None:
        """Average the gradients in the step's own graph; by gloo on CPU, where XLA has no exchange of processes."""
        if self.world == 1:
            return
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if xr.device_type() != "CPU":
            xm.all_reduce(xm.REDUCE_SUM, gradients, scale=1 / self.world)
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients]).cpu()
        dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        averages = torch.split((flat / self.world).to(self.device), sizes)
        for gradient, average in zip(gradients, averages, strict=True):
            gradient.copy_(average.view_as(gradient))


def _compiled() -> int:
    """Graphs that this process has compiled."""
    found = xla_metrics.metric_data("CompileTime")
    return int(found[0]) if found else 0
