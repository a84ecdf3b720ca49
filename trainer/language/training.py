"""Optimiser, loss, gradient norm and measures of language models."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from trainer.checkpoints.shards import local_part
from trainer.config import LanguageConfig
from trainer.data.datasets import NO_LABEL
from trainer.step_log import Meter

BETAS = (0.9, 0.95)
"""Decays of AdamW's averages, as for Llama 2: https://arxiv.org/abs/2307.09288, section 2.1."""


def optimizer_groups(config: LanguageConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return the weights in groups, of which the norms do not decay."""
    matrices, norms = (
        [weight for weight in model.parameters() if (weight.dim() > 1) == is_2d and weight.requires_grad]
        for is_2d in (True, False)
    )
    return [{"params": matrices, "weight_decay": config.weight_decay}, {"params": norms, "weight_decay": 0.0}]


def losses(scores: torch.Tensor, labels: torch.Tensor, *, z_loss: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum over the labels that training lowers, and the sum of their cross entropies.

    The two differ by the z-loss of https://arxiv.org/abs/2204.02311, section 5.
    """
    scores, labels = scores.flatten(0, 1).float(), labels.flatten()
    loss = functional.cross_entropy(scores, labels, reduction="sum", ignore_index=NO_LABEL)
    if not z_loss:
        return loss, loss
    squares = scores.logsumexp(dim=-1).square()
    return loss + z_loss * squares.masked_fill(labels == NO_LABEL, 0).sum(), loss


@torch.no_grad()
def clip_gradients(weights: Iterable[torch.Tensor], most: float) -> torch.Tensor:
    """Return the norm of the gradients over all ranks, and scale them down to `most` if it is higher and not 0.

    torch's clip_grad_norm_ would reduce each sharded gradient's norm on its own.
    """
    gradients: list[Any] = [weight.grad for weight in weights if weight.grad is not None]
    norms: dict[tuple[bool, ...], list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        axes = tuple(not placement.is_replicate() for placement in getattr(gradient, "placements", ()))
        norms[axes].append(local_part(gradient))
    total = torch.zeros((), device=gradients[0].device)
    for axes, parts in norms.items():
        square = torch.stack(torch._foreach_norm(parts)).square().sum()
        for axis, is_shared in enumerate(axes):
            if is_shared:
                dist.all_reduce(square, group=gradients[0].device_mesh.get_group(axis))
        total += square
    norm = total.sqrt()
    if most:
        torch._foreach_mul_([local_part(gradient) for gradient in gradients], (most / (norm + 1e-6)).clamp(max=1.0))
    return norm


class TokenMeter(Meter):
    """Sum up the losses of tokens and the norms of gradients on the device. Only reading the sums waits for it."""

    def __init__(self, device: torch.device, *, bytes_per_token: float) -> None:
        super().__init__(device, numbers=4)
        self._bytes_per_token = bytes_per_token

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add the sum of the losses of a batch and the number of its labels."""
        del logits
        found = torch.stack([loss_sum.detach().double(), (labels != NO_LABEL).sum().double()])
        self._sums = self._sums + functional.pad(found, (0, 2))

    def add_norm(self, norm: torch.Tensor) -> None:
        """Add the norm of a step's gradient."""
        self._sums = self._sums + functional.pad(torch.stack([norm.double(), torch.ones_like(norm).double()]), (2, 0))

    def take(self, sums: torch.Tensor) -> tuple[dict[str, float], int]:
        """Return the means since the sums of the last call by name, and the number of tokens."""
        loss, tokens, norms, steps = self.since(sums)
        mean = loss / max(tokens, 1)
        bits = bits_per_byte(mean, self._bytes_per_token)
        return {"loss": mean, "bits_per_byte": bits, "gradient_norm": norms / max(steps, 1)}, int(tokens)


def bits_per_byte(loss: float, bytes_per_token: float) -> float:
    """Return the bits that the model needs for a byte of text, from the mean loss of a token."""
    return loss / math.log(2) / bytes_per_token
