"""Runtimes of PyTorch/XLA: one process per host for all its devices (SPMD), or one process per device."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from trainer.config import LanguageConfig, TrainConfig
from trainer.data.datasets import NO_LABEL, PREFETCH_STEPS, Batch, Data, GeneratedImages
from trainer.data.sampler import EpochSampler, Share
from trainer.distributed import local_part, rendezvous_environment
from trainer.exit_codes import ConfigurationError
from trainer.language.decoder import Block
from trainer.language.sizes import Parallelism
from trainer.rules import invalid_setting
from trainer.runtime.base import Runtime

MIN_LEARNING_RATE = 1e-12
DATA, SHARD = "data", "shard"
"""Axes of the device mesh of a decoder."""
PreparedBatch = tuple[tuple[int, int], Batch]
"""A step's position (epoch, and samples of the epoch before the step) and its batch."""

try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as xla_metrics
    import torch_xla.debug.profiler as xp
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr
    from torch_xla._internal import pjrt
except ImportError as error:
    raise ConfigurationError(
        f"device = 'xla': must be 'cpu', 'cuda' or 'auto' in this image ({error}); use the image of "
        "trainer/Dockerfile.xla, or unset $PJRT_DEVICE"
    ) from error


def start_xla(config: TrainConfig) -> XlaRuntime:
    """Initialise the devices of this process and join the other processes. Raises ConfigurationError without a device.

    torchrun starts one process per device. A process without torchrun has all devices of its host.
    """
    if config.compile:
        raise ConfigurationError("compile = True: must be False on XLA, which compiles every step; leave --compile out")
    if dist.is_torchelastic_launched():
        return ReplicaRuntime(config)
    os.environ.update(rendezvous_environment(os.environ))
    if isinstance(config, LanguageConfig):
        return DecoderRuntime(config)
    return SpmdRuntime(config)


class XlaRuntime(Runtime):
    """A process with XLA devices. PyTorch/XLA compiles recorded operations to graphs. Only reads of values wait."""

    backend = "gloo"
    metrics_lag_steps = 2
    is_lockstep = True
    local_devices = 1
    """Number of devices of this process."""
    inputs_spec: Any = None
    labels_spec: Any = None
    """Shardings of a batch over several devices."""

    def init_device(self, config: TrainConfig) -> None:
        """Use the device that $PJRT_DEVICE names."""
        if config.threads:
            torch.set_num_threads(config.threads)
        self._compiled_outside_steps = 0
        try:
            self.device = torch_xla.device()
        except RuntimeError as error:
            raise ConfigurationError(
                f"PJRT_DEVICE = {os.environ.get('PJRT_DEVICE')!r}: must be a device of this host, such as CPU or TPU; "
                f"XLA says: {str(error).splitlines()[0]}"
            ) from error
        if config.profile_port:
            # Keep a reference, because the server stops with the object.
            self._server = xp.start_server(config.profile_port + self.local_rank, only_on_master=False)

    def half_dtype(self) -> torch.dtype | None:
        """Return bfloat16, the type in which TPUs multiply."""
        return torch.bfloat16

    @property
    def data_device(self) -> torch.device:
        """The CPU. The host prepares batches while devices compute, and evaluation counts need no graph per shape."""
        return torch.device("cpu")

    def feed(self, data: Data) -> Data:
        """Return a data set that sends its batches to the device in advance."""
        return PrefetchedBatches(data, self, batch_size=self.config.batch_size, accumulate=self.config.accumulate)

    def set_parallelism(self, sizes: Parallelism) -> None:
        """Raise ConfigurationError for unsupported settings. Only SPMD shards weights, and only along one axis."""
        if getattr(self.config, "activation_checkpointing", "") == "selective":
            raise invalid_setting("activation_checkpointing", "selective", "none or full on XLA", "write full")
        if sizes.tensor > 1 or (sizes.shard > 1 and dist.is_torchelastic_launched()):
            remedy = "start one process per host, without torchrun, and write shard instead of tensor"
            allowed = "sizes of data and shard, without tensor, on XLA; shard needs one process per host"
            raise invalid_setting("parallelism", getattr(self.config, "parallelism", ""), allowed, remedy)

    def round_up_batch(self, samples: int) -> int:
        """Round a number of samples up so that the devices of this process can share them evenly."""
        return -(-samples // self.local_devices) * self.local_devices

    def scale(self, scale: float) -> torch.Tensor:
        """Return the factor for the sum of losses as a tensor on the device."""
        return self._scalar(scale)

    def to_device(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and labels on the device. With SPMD they are this host's part of the global batch."""
        (sent_inputs,) = xm.send_cpu_data_to_device([inputs], self.device, self.inputs_spec)
        (sent_labels,) = xm.send_cpu_data_to_device([labels], self.device, self.labels_spec)
        return sent_inputs, sent_labels

    def training(self, step: int) -> AbstractContextManager[object]:
        """Return a context that makes a step one graph, and one span of a profile."""
        return cast("AbstractContextManager[object]", xp.StepTrace("train_step", step_num=step))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Return a context without gradients, whose graphs do not count as graphs of steps."""
        with torch.no_grad(), self.outside_steps():
            yield

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        """Set the learning rate as a tensor, because a number would be part of the graph."""
        # Adam divides by the rate, so it must not be 0. SGD reads the value of the tensor, and so waits for it, unless
        # the tensor requires a gradient (torch/optim/sgd.py).
        number = self._scalar(max(rate, MIN_LEARNING_RATE)).requires_grad_(isinstance(optimizer, torch.optim.SGD))
        for group in optimizer.param_groups:
            group["lr"] = number

    def flush(self) -> None:
        """End the graph and start to compute it."""
        torch_xla.sync()

    def sync_buffers(self, model: nn.Module) -> None:
        """Copy rank 0's buffers to all ranks, outside of the steps' graphs."""
        with self.outside_steps():
            super().sync_buffers(model)
            torch_xla.sync()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all ranks, on the host."""
        return super().sum(values.cpu())

    def to_host(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return copies in host memory."""
        with self.outside_steps():
            torch_xla.sync()
            return {name: self.host_part(tensor.detach()) for name, tensor in tensors.items()}

    def host_part(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a tensor that this process saves."""
        return tensor.cpu()

    def counts(self) -> dict[str, int]:
        """Return the number of graphs that PyTorch/XLA has compiled for training steps."""
        return {"compilations": _compiled() - self._compiled_outside_steps}

    def _scalar(self, value: float) -> torch.Tensor:
        numbers: list[torch.Tensor] = xm.send_cpu_data_to_device([torch.tensor(value)], self.device)
        return numbers[0]

    @contextmanager
    def outside_steps(self) -> Iterator[None]:
        """Return a context whose graphs do not count as graphs of steps."""
        before = _compiled()
        try:
            yield
        finally:
            self._compiled_outside_steps += _compiled() - before


class SpmdRuntime(XlaRuntime):
    """XLA with one process per host. Every host runs the same program, which is split over all devices of all hosts."""

    def init_device(self, config: TrainConfig) -> None:
        """Combine all devices into one. This must happen before the first tensor is created."""
        xr.use_spmd()
        super().init_device(config)
        self.local_devices = xr.addressable_runtime_device_count()
        self.num_devices = xr.global_runtime_device_count()

    def devices(self) -> list[int]:
        """Return the numbers of all devices, host by host. A host's numbers need not be consecutive."""
        native: Any = torch_xla._XLAC
        own = [int(name.rpartition(":")[2]) for name in native._xla_get_runtime_devices()]
        return [number for numbers in self.gather(own) for number in numbers]

    def scale(self, scale: float) -> torch.Tensor:
        """Return the factor divided by the number of hosts, because the sum of losses includes those of all hosts."""
        return self._scalar(scale / self.world)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Arrange the devices for convolutions and for linear layers, and return the model.

        With `sharding` set to model, shard its weights: by the outputs of each layer, and of the last linear layer also
        by the inputs.
        """
        if (count := self.num_devices) == 1:
            return model
        numbers, second = np.array(self.devices()), 2 if count % 2 == 0 else 1
        conv = xs.Mesh(numbers, (count // second, second, 1, 1), ("data", "dim1", "dim2", "dim3"))
        linear = xs.Mesh(numbers, (count // second, second), ("data", "model"))
        # Each host provides its own samples, so the first axes of both meshes follow the order of the hosts.
        self.inputs_spec = xs.ShardingSpec(conv, (("data", "dim1"), None, None, None), minibatch=True)
        self.labels_spec = xs.ShardingSpec(linear, (("data", "model"),), minibatch=True)
        layers = list(model.modules()) if getattr(self.config, "sharding", "") == "model" else []
        last = [layer for layer in layers if isinstance(layer, nn.Linear)][-1:]
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                xs.mark_sharding(layer.weight, conv, ("data", None, None, None))
            elif isinstance(layer, nn.Linear):
                xs.mark_sharding(layer.weight, linear, ("data", "model" if layer in last else None))
        return model

    def sync_buffers(self, model: nn.Module) -> None:
        """Do nothing: every host already has the statistics of the global batch."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values on the host: every host already has the sums of the global batch."""
        return values.cpu()

    def shardings(self, model: nn.Module, batch: Batch) -> dict[str, str]:
        """Return the shardings of the batch and of each weight by name."""
        if self.num_devices == 1:
            return {}
        name = "tokens" if isinstance(self.config, LanguageConfig) else "images"
        tensors = {name: batch.inputs, "labels": batch.labels, **dict(model.named_parameters())}
        native: Any = torch_xla._XLAC
        return {name: native._get_xla_sharding_spec(tensor).replace(" ", "_") for name, tensor in tensors.items()}


class ReplicaRuntime(XlaRuntime):
    """XLA with one process per device, started by torchrun."""

    def init_device(self, config: TrainConfig) -> None:
        """Select one chip of the host. PyTorch/XLA's own launcher does this, and torchrun does not."""
        pjrt.initialize_multiprocess(self.local_rank, self.local_world)
        super().init_device(config)

    def sync_gradients(self, model: nn.Module) -> None:
        """Average the gradients in the step's graph. On CPUs use gloo, because XLA cannot communicate there."""
        if self.world == 1:
            return
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if xr.device_type() != "CPU":
            xm.all_reduce(xm.REDUCE_SUM, gradients, scale=1 / self.world)
            return
        averages = self.sum(torch.cat([gradient.flatten() for gradient in gradients])) / self.world
        parts = torch.split(averages.to(self.device), [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


class DecoderRuntime(SpmdRuntime):
    """SPMD that shards a decoder's weights, gradients and optimizer state across the devices of all hosts.

    It shards weights along the model's width, as MaxText shards its axis `embed`:
    https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/base.yml (logical_axis_rules). Some
    adapters lack that dimension and stay whole.
    """

    def set_parallelism(self, sizes: Parallelism) -> None:
        """Arrange the devices. Each device has a part of the weights, and each host saves its devices' parts."""
        super().set_parallelism(sizes)
        width, per_host = cast("LanguageConfig", self.config).sizes.width, self.num_devices // self.world
        if width % sizes.shard or (sizes.shard % per_host and per_host % sizes.shard):
            allowed = f"a divisor of the width, {width}, and a divisor or a multiple of a host's {per_host} devices"
            raise invalid_setting("parallelism", f"shard={sizes.shard}", allowed, "change shard or --width")
        self._width = width if sizes.is_sharded else 0
        self._mesh = xs.Mesh(np.array(self.devices()), (sizes.data, sizes.shard), (DATA, SHARD))
        self.inputs_spec = self.labels_spec = xs.ShardingSpec(self._mesh, ((DATA, SHARD), None), minibatch=True)
        group = max(1, sizes.shard // per_host)
        self._hosts = (self.world // group, group)
        self._host_mesh: Any = None

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with sharded weights. Hooks shard the samples of each block's output."""
        for weight in model.parameters():
            self.shard(weight)
        for layer in model.modules():
            if isinstance(layer, nn.Embedding | Block):
                layer.register_forward_hook(self._shard_samples)
        return model

    def sync_gradients(self, model: nn.Module) -> None:
        """Shard the gradients like their weights, so that XLA shards the optimizer's state too."""
        for weight in model.parameters():
            if weight.grad is not None:
                self.shard(weight.grad)

    def host_part(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a tensor that this host's devices hold."""
        if (axis := self._axis(tensor)) is None:
            return tensor.cpu()
        parts = {shard.indices[axis].start: shard.data for shard in xs.XLAShardedTensor(tensor).local_shards}
        return self._on_host(tensor, torch.cat([parts[start] for start in sorted(parts)], dim=axis))

    def host_like(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the size and the sharding of `host_part`. Its values have no meaning."""
        axis, whole = self._axis(weight), torch.empty(weight.shape, device="meta")
        return whole if axis is None else self._on_host(weight, whole.chunk(self._hosts[1], dim=axis)[0])

    def restore(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy this host's part of a saved tensor to its devices."""
        part, axis = local_part(saved), self._axis(target)
        with self.outside_steps():
            self.shard(target)
            if axis is None:
                target.copy_(part)
                return
            sharded = xs.XLAShardedTensor(target)
            shards = sharded.local_shards
            first = min(shard.indices[axis].start for shard in shards)
            for shard in shards:
                shard.data = part.narrow(axis, shard.indices[axis].start - first, shard.data.shape[axis]).contiguous()
            sharded.load_local_shards_(shards)

    def _axis(self, tensor: torch.Tensor) -> int | None:
        """Return the sharded dimension, or None."""
        return tensor.shape.index(self._width) if self._width in tensor.shape else None

    def shard(self, tensor: torch.Tensor) -> None:
        """Shard a tensor like the weights of the same size."""
        axis = self._axis(tensor)
        xs.mark_sharding(tensor, self._mesh, tuple(SHARD if own == axis else None for own in range(tensor.dim())))

    def _shard_samples(self, _layer: nn.Module, _inputs: Any, hidden: torch.Tensor) -> None:
        # Without this, XLA may shard the width and gather the samples. A generated text is one sample and stays whole.
        if len(hidden) % self.num_devices == 0:
            xs.mark_sharding(hidden, self._mesh, ((DATA, SHARD), None, None))

    def _on_host(self, tensor: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """Return this host's part as a DTensor of the whole, or unchanged if it is the whole."""
        if part.shape == tensor.shape:
            return part
        # Imported here because it takes a second to load, and a single host does not need it.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        self._host_mesh = self._host_mesh or init_device_mesh("cpu", self._hosts, mesh_dim_names=(DATA, SHARD))
        placements = (Replicate(), Shard(tensor.shape.index(self._width)))
        return DTensor.from_local(part, self._host_mesh, placements, run_check=False)


class PrefetchedBatches(Data):
    """A data set whose batches a thread sends to the device in advance.

    All batches have the same shape, because each shape needs a graph.
    """

    def __init__(self, data: Data, runtime: XlaRuntime, *, batch_size: int, accumulate: int) -> None:
        self.classes, self.sample_shape = data.classes, data.sample_shape
        self.num_samples, self.num_tests = data.num_samples, data.num_tests
        self._data, self._runtime = data, runtime
        # Generated images always have the same full batch, so send it once.
        self._is_constant = isinstance(data, GeneratedImages)
        self._size = runtime.round_up_batch(-(-batch_size // accumulate)) * accumulate
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._prefetched: deque[Future[PreparedBatch | None]] = deque()
        self._kept: Batch | None = None

    @property
    def broken(self) -> Sequence[str]:
        return self._data.broken

    def follow(self, sampler: EpochSampler) -> None:
        self._followed = sampler

    def batch(self, share: Share, *, world: int) -> Batch:
        step = (share.epoch, share.position)
        prepared = self._prefetched.popleft().result() if self._prefetched else None
        if prepared is None or prepared[0] != step:
            # A new epoch has started, or a checkpoint was restored. Copy the sampler, which may have a restored seed.
            while self._prefetched:
                self._prefetched.popleft().result()
            self._sampler = copy.copy(self._followed)
            self._sampler.epoch, self._sampler.position = step
            self._data.follow(self._sampler)
            prepared = self._thread.submit(self._next, world).result()
            assert prepared, "the epoch has this step"
        while len(self._prefetched) < PREFETCH_STEPS:
            self._prefetched.append(self._thread.submit(self._next, world))
        return prepared[1]

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's part of the test set. All ranks yield equally many batches. Some may be padding."""
        batches = self._data.test_batches(rank=rank, world=world)
        size = 0
        while True:
            images, labels = next(batches, (torch.empty(0, *self.sample_shape), torch.empty(0).long()))
            largest = max(self._runtime.gather(len(labels)))
            if not largest:
                return
            size = size or self._runtime.round_up_batch(largest)
            yield self._send(images, labels, size)

    def _next(self, world: int) -> PreparedBatch | None:
        """Return the next step's batch, or None at the end of the epoch. Runs in the thread."""
        if not self._sampler.steps_left:
            return None
        share = self._sampler.next()
        step = (share.epoch, share.position)
        batch = self._data.batch(share, world=world)
        scale = self._runtime.scale(float(batch.scale))
        is_kept = self._is_constant and len(batch.labels) == self._size
        if is_kept and self._kept:
            return step, replace(self._kept, scale=scale)
        inputs, labels = self._send(batch.inputs, batch.labels, self._size)
        sent = Batch(inputs=inputs, labels=labels, scale=scale)
        self._kept = sent if is_kept else self._kept
        return step, sent

    def _send(self, images: torch.Tensor, labels: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        padded_labels = _padded(labels, size)
        padded_labels[len(labels) :] = NO_LABEL
        return self._runtime.to_device(_padded(images, size), padded_labels)


def _padded(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Return the tensor with its samples repeated up to `size`, so that batch statistics come from real images."""
    if not len(tensor):
        return tensor.new_zeros(size, *tensor.shape[1:])
    return tensor if len(tensor) >= size else tensor[torch.arange(size) % len(tensor)]


def _compiled() -> int:
    """Return the number of graphs that this process has compiled."""
    return int((xla_metrics.metric_data("CompileTime") or [0])[0])
