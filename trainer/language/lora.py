"""LoRA: fine-tune two low-rank matrices per layer instead of its weights (https://arxiv.org/abs/2106.09685)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from trainer.language.decoder import DOWN, UP, Decoder


class AdaptedLinear(nn.Linear):
    """A linear layer with fixed weights. The product of two trained matrices is added to its output."""

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
    """Add adapters to every linear layer of the blocks, and fix all other weights."""
    for block in model.blocks:
        for module in list(block.modules()):
            for name, layer in list(module.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(module, name, AdaptedLinear(layer, rank=rank, scale=scale))
    for name, weight in model.named_parameters():
        weight.requires_grad_(is_adapter(name))


def is_adapter(name: str) -> bool:
    """Return True for the name of an adapter."""
    return name.endswith((f".{DOWN}", f".{UP}"))
