"""A decoder-only transformer like Llama, and its linear layers with LoRA adapters or in float8."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from trainer.distributed import local_part, own_part
from trainer.language.sizes import ROPE_RANGE, ROPE_TOKENS, SEPARATOR, Sizes
from trainer.rules import FLOAT8_MULTIPLE, invalid_setting

EPSILON = 1e-5
"""Term that keeps a norm's divisor above 0, as in Llama 3."""
DEVIATION = 0.02
"""Standard deviation of a new matrix. For a matrix that ends a residual branch, divide by sqrt(2 x layers), as in
https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf, section 2.3."""
RESIDUAL_ENDS = ("out.weight", "down.weight")
"""Ends of the names of matrices that end a residual branch."""
DOWN, UP = "lora_down", "lora_up"
"""Names of a layer's two LoRA matrices. The second starts as zero, so that new adapters do not change the model."""
_ATTENTIONS = ("flash_attention_for_cpu", "cudnn_attention", "efficient_attention", "flash_attention")
_KEPT_NAMES = ("mm", *(f"_scaled_dot_product_{name}" for name in _ATTENTIONS))
KEPT_OPERATIONS = [getattr(torch.ops.aten, name).default for name in _KEPT_NAMES]
"""Operations whose results selective activation checkpointing keeps, because they take most of the time."""

FLOAT8_CAPABILITY = (8, 9)
"""Lowest compute capability with float8: https://nvidia.github.io/TransformerEngine/support_matrix.html."""

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of each position's angles, tokens x head width. The first half of the sines is negated."""


class Attention(nn.Module):
    """Causal self-attention. Each group of heads shares keys and values (grouped-query attention)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head_width, self.group = sizes.head_width, sizes.heads // sizes.kv_heads
        # One product is faster than three. Its rows are ordered by key head, so that a tensor group can divide them.
        self.qkv = nn.Linear(sizes.width, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_width, bias=False)
        self.out = nn.Linear(sizes.heads * sizes.head_width, sizes.width, bias=False)

    def forward(self, hidden: torch.Tensor, rotation: Rotation, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the attention output of each token. Without a mask, a token attends to itself and all earlier ones."""
        # In a tensor group each rank has some of the heads.
        heads = self.qkv(hidden).unflatten(-1, (-1, self.group + 2, self.head_width))
        query, key, value = heads.split((self.group, 1, 1), dim=-2)
        # Copy the values: a view would keep the whole product in memory until the backward pass.
        value = value.contiguous()
        cosine, sine = (angles[:, None, None] for angles in rotation)
        query, key = rotate(query, (cosine, sine)), rotate(key, (cosine, sine))
        query, key, value = (each.flatten(2, 3).transpose(1, 2) for each in (query, key, value))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return cast("torch.Tensor", self.out(mixed.transpose(1, 2).flatten(2)))


def split_qkv(weight: torch.Tensor, sizes: Sizes) -> tuple[torch.Tensor, ...]:
    """Split a weight of Attention.qkv into the rows of queries, keys and values, each in the order of the heads."""
    groups = weight.reshape(sizes.kv_heads, sizes.heads // sizes.kv_heads + 2, -1, weight.shape[1])
    return tuple(part.flatten(0, 2) for part in torch.split(groups, [sizes.heads // sizes.kv_heads, 1, 1], dim=1))


def join_qkv(parts: Sequence[torch.Tensor], kv_heads: int) -> torch.Tensor:
    """Join the rows of queries, keys and values to a weight of Attention.qkv with this number of key heads."""
    return torch.cat([part.reshape(kv_heads, -1, part.shape[1]) for part in parts], dim=1).flatten(0, 1)


class FeedForward(nn.Module):
    """SwiGLU: multiply two layers' outputs, one of them after SiLU. A third layer maps the product to `width`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output for each token."""
        found: torch.Tensor = self.down(functional.silu(self.gate(hidden)) * self.up(hidden))
        return found


class Block(nn.Module):
    """Attention, then a feed-forward layer. Each follows a norm, and its result is added to the input of that norm."""

    def __init__(self, sizes: Sizes, *, checkpointing: str) -> None:
        super().__init__()
        self._checkpointing = checkpointing
        self.attention_norm = nn.RMSNorm(sizes.width, eps=EPSILON)
        self.attention = Attention(sizes)
        self.feed_forward_norm = nn.RMSNorm(sizes.width, eps=EPSILON)
        self.feed_forward = FeedForward(sizes)

    def forward(self, hidden: torch.Tensor, rotation: Rotation, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the hidden state after this block. The backward pass may compute parts of it again."""
        if self._checkpointing == "none" or not torch.is_grad_enabled():
            return self._run(hidden, rotation, mask)
        if hidden.device.type == "xla":
            # XLA would merge the second forward pass of torch's checkpoint with the first. XLA's own checkpoint needs
            # an input with a gradient.
            from torch_xla.utils.checkpoint import checkpoint as xla_checkpoint

            hidden = hidden if hidden.requires_grad else hidden.detach().requires_grad_()
            return cast("torch.Tensor", xla_checkpoint(self._run, hidden, rotation, mask, preserve_rng_state=False))
        is_selective = self._checkpointing == "selective"
        contexts = partial(create_selective_checkpoint_contexts, KEPT_OPERATIONS)
        keep: Any = {"context_fn": contexts} if is_selective else {}
        found: torch.Tensor = checkpoint(
            self._run, hidden, rotation, mask, use_reentrant=False, preserve_rng_state=False, **keep
        )
        return found

    def _run(self, hidden: torch.Tensor, rotation: Rotation, mask: torch.Tensor | None) -> torch.Tensor:
        kind = hidden.device.type
        # Cast here, so that layers with the same input share one copy, and tensor groups exchange 16-bit numbers.
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        hidden = hidden + self.attention(self.attention_norm(hidden).to(dtype), rotation, mask)
        found: torch.Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden).to(dtype))
        return found


class Decoder(nn.Module):
    """The whole model: from tokens to a score of each possible next token."""

    def __init__(
        self,
        sizes: Sizes,
        *,
        vocabulary: int,
        rope_base: float,
        rope_factor: float = 1.0,
        separator: int = SEPARATOR,
        checkpointing: str = "none",
    ) -> None:
        super().__init__()
        self.sizes, self._separator = sizes, separator
        self._base, self._factor = rope_base, rope_factor
        self.embedding = nn.Embedding(vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes, checkpointing=checkpointing) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=EPSILON)
        self.head = nn.Linear(sizes.width, vocabulary, bias=False)
        self.tie()

    def tie(self) -> None:
        """Let the output layer use the weights of the embedding, if the model is tied."""
        if self.sizes.is_tied:
            self.head.weight = self.embedding.weight

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Compile each block separately, because all blocks have the same code."""
        for block in self.blocks:
            block.compile(*arguments, **options)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores, samples x tokens x vocabulary."""
        rotation = rotation_of(tokens.shape[1], self.sizes.head_width, self._base, tokens.device, factor=self._factor)
        mask = document_mask(tokens, self._separator)
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, rotation, mask)
        scores: torch.Tensor = self.head(self.norm(hidden))
        return scores


def rotation_of(tokens: int, head_width: int, base: float, device: torch.device, *, factor: float = 1) -> Rotation:
    """Return the rotary embedding of the first positions, https://arxiv.org/abs/2104.09864.

    A factor other than 1 divides the speed of slow rotations, as in Llama 3.1, for longer contexts.
    """
    speeds = base ** -(torch.arange(0, head_width, 2, device=device) / head_width)
    if factor != 1:
        low, high = ROPE_RANGE
        kept = ((ROPE_TOKENS / (2 * math.pi) * speeds - low) / (high - low)).clamp(0, 1)
        speeds = speeds * (kept + (1 - kept) / factor)
    angles = torch.outer(torch.arange(tokens, device=device), speeds)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([cosine, cosine], dim=-1), torch.cat([-sine, sine], dim=-1)


def rotate(heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate each pair of a head's numbers (n, n + half the width) by the angle of its token's position, in 32 bits."""
    cosine, sine = rotation
    wide = heads.float()
    return torch.addcmul(wide * cosine, wide.roll(wide.shape[-1] // 2, dims=-1), sine).to(heads.dtype)


def document_mask(tokens: torch.Tensor, separator: int = SEPARATOR) -> torch.Tensor | None:
    """Return a mask with which each token attends to itself and to earlier tokens of its document.

    A separator begins a document. If no document begins within a sample, return None to allow a faster kernel. Check
    this only on a CPU: on another device, the check would make the host wait for the device.
    """
    begins = tokens == separator
    if tokens.device.type == "cpu" and not begins[:, 1:].any():
        return None
    documents = begins.cumsum(dim=1)
    return (documents.unsqueeze(1) == documents.unsqueeze(2)).tril().unsqueeze(1)


@torch.no_grad()
def initialize(model: Decoder, *, seed: int) -> None:
    """Initialize each weight from the seed and the weight's name. The values do not depend on the groups of ranks."""
    for name, weight in model.named_parameters():
        local = local_part(weight)
        if weight.dim() == 1 or name.endswith(UP):
            local.fill_(weight.dim() == 1)
            continue
        deviation = DEVIATION / ((2 * model.sizes.layers) ** 0.5 if name.endswith(RESIDUAL_ENDS) else 1)
        number = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7])
        generator = torch.Generator(local.device).manual_seed(number)
        values = torch.empty(weight.shape, device=local.device).normal_(std=deviation, generator=generator)
        local.copy_(values[own_part(weight)])


class AdaptedLinear(nn.Linear):
    """A linear layer with LoRA adapters: two trained matrices, whose output is added to that of the fixed weights.

    https://arxiv.org/abs/2106.09685
    """

    def __init__(self, like: nn.Linear, *, rank: int, scale: float) -> None:
        super().__init__(like.in_features, like.out_features, bias=False)
        self.lora_down = nn.Parameter(torch.empty(rank, like.in_features))
        self.lora_up = nn.Parameter(torch.empty(like.out_features, rank))
        self._scale = scale

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        added = functional.linear(functional.linear(hidden, self.lora_down), self.lora_up)
        return super().forward(hidden) + self._scale * added


def adapt(model: Decoder, *, rank: int, scale: float) -> None:
    """Add adapters to every linear layer of the blocks, and freeze all other weights."""
    for block in model.blocks:
        for module in list(block.modules()):
            for name, layer in list(module.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(module, name, AdaptedLinear(layer, rank=rank, scale=scale))
    for name, weight in model.named_parameters():
        weight.requires_grad_(is_adapter(name))


def is_adapter(name: str) -> bool:
    """Return True for the name of an adapter's weight."""
    return name.endswith((f".{DOWN}", f".{UP}"))


def use_float8(model: Decoder, scaling: str, device: torch.device, *, tensor: int, emulate: bool = False) -> None:
    """Let the linear layers of the blocks multiply in float8, except those whose sizes tensor cores do not support.

    The weights keep their types and names. With `emulate`, round to float8 but multiply in more bits, on any device.
    Raises ConfigurationError if the device has no float8, or if torchao is missing.
    """
    if not emulate and (device.type != "cuda" or torch.cuda.get_device_capability(device) < FLOAT8_CAPABILITY):
        allowed = "'none' without a GPU of compute capability 8.9 or higher, such as L4 or H100"
        raise invalid_setting("float8", scaling, allowed, "leave --float8 out, or use another GPU")
    try:
        # Imported here because it takes seconds to load, and models without float8 do not need it.
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError:
        raise invalid_setting("float8", scaling, "'none' in an image without torchao", "leave --float8 out") from None
    if scaling == "rowwise":
        # Without this, a compiled RMSNorm can give NaN: https://github.com/pytorch/pytorch/issues/150859
        from torch._inductor import config as inductor

        inductor.emulate_precision_casts = True

    def is_divisible(layer: Any, _name: str) -> bool:
        # Each rank of a tensor group multiplies a part of one side.
        return all(side % (FLOAT8_MULTIPLE * tensor) == 0 for side in layer.weight.shape)

    config = replace(Float8LinearConfig.from_recipe_name(scaling), emulate=emulate)
    convert_to_float8_training(model.blocks, module_filter_fn=is_divisible, config=config)
