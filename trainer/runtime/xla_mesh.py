"""Devices of all hosts arranged for SPMD, and the parts of a model's tensors that they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
from torch import nn

from trainer.checkpoints.shards import local_part
from trainer.exit_codes import ConfigurationError
from trainer.language.decoder import Block
from trainer.language.sizes import Parallelism

DATA, SHARD = "data", "shard"


class OneDevice:
    """A single device, which has whole tensors."""

    inputs: xs.ShardingSpec | None = None
    """How samples are spread over the devices."""
    labels: xs.ShardingSpec | None = None

    def spread(self, model: nn.Module) -> None:
        """Spread the weights over the devices."""

    def divide(self, tensor: torch.Tensor) -> None:
        """Spread a tensor over the devices like the weights of its size."""

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a tensor that this host's devices have, in its memory."""
        return tensor.cpu()

    def host_like(self, weight: torch.Tensor) -> torch.Tensor:
        """Return an empty tensor with the size and the sharding of `to_host`."""
        return weight

    def restore(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy this host's part of a saved tensor to its devices."""
        target.copy_(saved)


class ImageMesh(OneDevice):
    """Devices arranged for convolutions and for linear layers."""

    def __init__(self, devices: Sequence[int]) -> None:
        numbers, count = np.array(devices), len(devices)
        second = 2 if count % 2 == 0 else 1
        self._conv = xs.Mesh(numbers, (count // second, second, 1, 1), ("data", "dim1", "dim2", "dim3"))
        self._linear = xs.Mesh(numbers, (count // second, second), ("data", "model"))
        # A host provides its own samples. The first axes of both meshes number them in the order of the hosts.
        self.inputs = xs.ShardingSpec(self._conv, (("data", "dim1"), None, None, None), minibatch=True)
        self.labels = xs.ShardingSpec(self._linear, (("data", "model"),), minibatch=True)

    def spread(self, model: nn.Module) -> None:
        """Spread the outputs of every layer, and the inputs of the last linear layer."""
        linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                xs.mark_sharding(layer.weight, self._conv, ("data", None, None, None))
            elif isinstance(layer, nn.Linear):
                last = layer is linear[-1]
                xs.mark_sharding(layer.weight, self._linear, ("data", "model" if last else None))


class DecoderMesh(OneDevice):
    """Devices arranged as copies (`data`) of a decoder, of which each device has a part (`shard`).

    Weights are divided along the model's width, which all but some adapters have, as MaxText divides its axis `embed`:
    https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/base.yml (logical_axis_rules).
    """

    def __init__(self, devices: Sequence[int], sizes: Parallelism, *, width: int, hosts: int) -> None:
        per_host = len(devices) // hosts
        if width % sizes.shard or (sizes.shard % per_host and per_host % sizes.shard):
            raise ConfigurationError(
                f"parallelism has shard={sizes.shard}, and the width is {width}; allowed is a divisor of the width "
                f"that divides the {per_host} devices of a host or is a multiple of them: change --parallelism"
            )
        self._width, self._count = width, len(devices)
        self._mesh = xs.Mesh(np.array(devices), (sizes.data, sizes.shard), (DATA, SHARD))
        self.inputs = self.labels = xs.ShardingSpec(self._mesh, ((DATA, SHARD), None), minibatch=True)
        group = max(1, sizes.shard // per_host)
        self._hosts = (hosts // group, group)
        self._host_mesh: Any = None

    def spread(self, model: nn.Module) -> None:
        """Spread the weights, and the samples of each block's output."""
        for weight in model.parameters():
            self.divide(weight)
        for layer in model.modules():
            if isinstance(layer, nn.Embedding | Block):
                layer.register_forward_hook(self._divide_samples)

    def divide(self, tensor: torch.Tensor) -> None:
        """Divide a tensor among the devices of a copy."""
        axis = self._axis(tensor)
        xs.mark_sharding(tensor, self._mesh, tuple(SHARD if own == axis else None for own in range(tensor.dim())))

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a tensor that this host's devices have, in its memory."""
        if (axis := self._axis(tensor)) is None:
            return tensor.cpu()
        shards = xs.XLAShardedTensor(tensor).local_shards
        parts = {shard.indices[axis].start: shard.data for shard in shards}
        return self._on_host(tensor, torch.cat([parts[start] for start in sorted(parts)], dim=axis))

    def host_like(self, weight: torch.Tensor) -> torch.Tensor:
        """Return an empty tensor with the size and the sharding of `to_host`."""
        size = list(weight.shape)
        if (axis := self._axis(weight)) is not None:
            size[axis] //= self._hosts[1]
        return self._on_host(weight, torch.empty(size, device="meta"))

    def restore(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy this host's part of a saved tensor to its devices."""
        self.divide(target)
        part, axis = local_part(saved), self._axis(target)
        if axis is None:
            target.copy_(part)
            return
        divided = xs.XLAShardedTensor(target)
        shards = divided.local_shards
        first = min(shard.indices[axis].start for shard in shards)
        for shard in shards:
            shard.data = part.narrow(axis, shard.indices[axis].start - first, shard.data.shape[axis]).contiguous()
        divided.load_local_shards_(shards)

    def _axis(self, tensor: torch.Tensor) -> int | None:
        """Return the dimension that is divided, or None."""
        return tensor.shape.index(self._width) if self._width in tensor.shape else None

    def _divide_samples(self, _layer: nn.Module, _inputs: Any, hidden: torch.Tensor) -> None:
        # Otherwise XLA may divide the width and gather the samples. A text that the model writes is a single sample.
        if len(hidden) % self._count == 0:
            xs.mark_sharding(hidden, self._mesh, ((DATA, SHARD), None, None))

    def _on_host(self, tensor: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        if part.shape == tensor.shape:
            return part
        # Imported here because a host with all weights does not need it.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        self._host_mesh = self._host_mesh or init_device_mesh("cpu", self._hosts, mesh_dim_names=(DATA, SHARD))
        placements = (Replicate(), Shard(tensor.shape.index(self._width)))
        return DTensor.from_local(
            part, self._host_mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
        )


def sharding(tensor: torch.Tensor) -> str:
    """Return XLA's description of a tensor's sharding, or an empty string if it has none."""
    native: Any = torch_xla._XLAC
    return str(native._get_xla_sharding_spec(tensor)).replace(" ", "_")
