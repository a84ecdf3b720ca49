"""SPMD: meshes of devices and the tensors that are spread over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
from torch import nn

CONV_AXES = ("data", "dim1", "dim2", "dim3")
LINEAR_AXES = ("data", "model")


class Meshes:
    """All devices of all hosts, arranged for convolutions and for linear layers."""

    def __init__(self, devices: int) -> None:
        numbers = np.arange(devices)
        second = 2 if devices % 2 == 0 else 1
        self.conv = xs.Mesh(numbers, (devices // second, second, 1, 1), CONV_AXES)
        self.linear = xs.Mesh(numbers, (devices // second, second), LINEAR_AXES)
        # A host provides its own samples. The first axes of both meshes number them in the order of the hosts.
        self.images = xs.ShardingSpec(self.conv, (("data", "dim1"), None, None, None), minibatch=True)
        self.labels = xs.ShardingSpec(self.linear, (("data", "model"),), minibatch=True)

    def spread(self, model: nn.Module) -> None:
        """Spread the weights: the outputs of every layer, and the inputs of the last linear layer."""
        linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                xs.mark_sharding(layer.weight, self.conv, ("data", None, None, None))
            elif isinstance(layer, nn.Linear):
                last = layer is linear[-1]
                xs.mark_sharding(layer.weight, self.linear, ("data", "model" if last else None))


def sharding(tensor: torch.Tensor) -> str:
    """Return XLA's description of a tensor's sharding, or an empty string if it has none."""
    native: Any = torch_xla._XLAC
    return str(native._get_xla_sharding_spec(tensor)).replace(" ", "_")
