"""XLA runtime that shares a decoder's weights, gradients and optimizer state among the devices of all hosts (SPMD)."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
import torch_xla.distributed.spmd as xs
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from trainer.checkpoints.shards import local_part
from trainer.config import LanguageConfig
from trainer.language.decoder import Block
from trainer.language.sizes import Parallelism
from trainer.rules import invalid_setting
from trainer.runtime.xla import SpmdRuntime

DATA, SHARD = "data", "shard"


class DecoderRuntime(SpmdRuntime):
    """SPMD for a decoder. Weights are divided along the model's width, which all but some adapters have.

    MaxText divides its axis `embed` in the same way:
    https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/base.yml (logical_axis_rules).
    """

    def divide_model(self, sizes: Parallelism) -> None:
        """Arrange the devices. Each has a part of the weights, and hosts save theirs."""
        super().divide_model(sizes)
        width, per_host = cast("LanguageConfig", self.config).sizes.width, self.num_devices // self.world
        if width % sizes.shard or (sizes.shard % per_host and per_host % sizes.shard):
            allowed = (
                f"a divisor of the width, {width}, that divides a host's {per_host} devices or is a multiple of them"
            )
            raise invalid_setting("parallelism", f"shard={sizes.shard}", allowed, "change shard or --width")
        self._width = width if sizes.is_sharded else 0
        self._mesh = xs.Mesh(np.array(self.devices()), (sizes.data, sizes.shard), (DATA, SHARD))
        self.inputs_spec = self.labels_spec = xs.ShardingSpec(self._mesh, ((DATA, SHARD), None), minibatch=True)
        group = max(1, sizes.shard // per_host)
        self._hosts = (self.world // group, group)
        self._host_mesh: Any = None

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with its weights divided, and with the samples of each block's output."""
        for weight in model.parameters():
            self.divide(weight)
        for layer in model.modules():
            if isinstance(layer, nn.Embedding | Block):
                layer.register_forward_hook(self._divide_samples)
        return model

    def sync_gradients(self, model: nn.Module) -> None:
        """Divide the gradients like their weights, so that XLA divides the optimizer's state too."""
        for weight in model.parameters():
            if weight.grad is not None:
                self.divide(weight.grad)

    def host_part(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a tensor that this host's devices have."""
        if (axis := self._axis(tensor)) is None:
            return tensor.cpu()
        parts = {shard.indices[axis].start: shard.data for shard in xs.XLAShardedTensor(tensor).local_shards}
        return self._on_host(tensor, torch.cat([parts[start] for start in sorted(parts)], dim=axis))

    def host_like(self, weight: torch.Tensor) -> torch.Tensor:
        """Return an empty tensor with the size and the sharding of `host_part`."""
        axis, whole = self._axis(weight), torch.empty(weight.shape, device="meta")
        return whole if axis is None else self._on_host(weight, whole.chunk(self._hosts[1], dim=axis)[0])

    def restore(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy this host's part of a saved tensor to its devices."""
        part, axis = local_part(saved), self._axis(target)
        with self.outside_steps():
            self.divide(target)
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

    def divide(self, tensor: torch.Tensor) -> None:
        """Divide a tensor like the weights of its size."""
        axis = self._axis(tensor)
        xs.mark_sharding(tensor, self._mesh, tuple(SHARD if own == axis else None for own in range(tensor.dim())))

    def _divide_samples(self, _layer: nn.Module, _inputs: Any, hidden: torch.Tensor) -> None:
        # Otherwise XLA may divide the width and gather the samples. A text that the model writes is a single sample.
        if len(hidden) % self.num_devices == 0:
            xs.mark_sharding(hidden, self._mesh, ((DATA, SHARD), None, None))

    def _on_host(self, tensor: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """Return this host's part as a part of the whole tensor."""
        if part.shape == tensor.shape:
            return part
        self._host_mesh = self._host_mesh or init_device_mesh("cpu", self._hosts, mesh_dim_names=(DATA, SHARD))
        placements = (Replicate(), Shard(tensor.shape.index(self._width)))
        return DTensor.from_local(part, self._host_mesh, placements, run_check=False)
