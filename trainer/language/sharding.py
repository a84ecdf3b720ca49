"""Shard a decoder: tensor parallelism with DTensor, then sharded and replicated data parallelism with FSDP2."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from trainer.language.decoder import AdaptedLinear, Decoder
from trainer.language.sizes import Parallelism

DATA, SHARD, TENSOR = "data", "shard", "tensor"
"""Axes of the device mesh. Ranks that are neighbours on the last axis have consecutive numbers."""


def shard_model(model: Decoder, sizes: Parallelism, device_type: str, *, dtype: torch.dtype) -> None:
    """Shard the weights, so that each rank has only a part of them. The weights must be on the meta device.

    The sharded model computes in `dtype` and reduces gradients in 32 bits.
    """
    mesh = init_device_mesh(device_type, (sizes.data, sizes.shard, sizes.tensor), mesh_dim_names=(DATA, SHARD, TENSOR))
    if sizes.tensor > 1:
        _shard_matrices(model, mesh[TENSOR])
    # Cast only the weights: the angles of the rotary embedding need 32 bits.
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    copies = mesh[DATA, SHARD] if sizes.data > 1 else mesh[SHARD]
    for block in model.blocks:
        fully_shard(block, mesh=copies, mp_policy=policy)
    fully_shard(model, mesh=copies, mp_policy=policy)


def _shard_matrices(model: Decoder, mesh: DeviceMesh) -> None:
    """Shard heads, hidden width and vocabulary across a tensor group. Between these layers, shard the tokens.

    Tensor parallelism: https://arxiv.org/abs/1909.08053. Sequence parallelism: https://arxiv.org/abs/2205.05198.
    """
    tokens, frozen = Shard(1), [name for name, weight in model.named_parameters() if not weight.requires_grad]
    block: dict[str, ParallelStyle] = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(tokens, None, None), desired_input_layouts=(Replicate(), None, None)
        ),
        "attention.qkv": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=tokens),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(tokens,), desired_input_layouts=(Replicate(),)),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=tokens),
    }
    for module in model.blocks:
        parallelize_module(module, mesh, block)
        for name, style in block.items():
            if isinstance(layer := module.get_submodule(name), AdaptedLinear):
                _shard_adapters(layer, mesh, is_column=isinstance(style, ColwiseParallel))
    whole: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=tokens, output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, whole)
    for name in frozen:  # SequenceParallel has replaced frozen weights with trainable ones.
        model.get_parameter(name).requires_grad_(False)
    # Clone the embedding's output to a plain tensor. Until the other ranks have sent their parts, the output is an
    # AsyncCollectiveTensor. If a compiled block gets such a tensor, torch 2.15 loses the gradient.
    model.embedding.register_forward_hook(lambda _module, _tokens, hidden: hidden.clone())
    model.tie()


def _shard_adapters(layer: AdaptedLinear, mesh: DeviceMesh, *, is_column: bool) -> None:
    """Shard one LoRA matrix on the side on which the layer's own matrix is sharded, and replicate the other."""
    down, up = (Replicate(), Shard(0)) if is_column else (Shard(1), Replicate())
    layer.lora_down, layer.lora_up = (
        nn.Parameter(distribute_tensor(torch.empty(weight.shape, device=weight.device), mesh, [placement]))
        for weight, placement in ((layer.lora_down, down), (layer.lora_up, up))
    )
