"""Plain training loop of a language model, as in a script of one file: no checkpoints, events, clocks or watchdog.

It cuts a row of tokens into samples in random order, and has a learning rate schedule, AdamW, a clipped gradient and a
printed loss. The model and its optimizer are those of the loop that it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class PlainSettings:
    """Settings of the loop."""

    batch_size: int
    context: int
    learning_rate: float
    warmup_steps: int = 100
    all_steps: int = 1_000_000
    clip_norm: float = 1.0
    print_steps: int = 20
    half: torch.dtype | None = None
    """Type of matrix products; None for 32 bits."""
    device: str = "cpu"
    """Type of the device."""


def batches(row: torch.Tensor, settings: PlainSettings) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the inputs and labels of an epoch in random order."""
    size, context = settings.batch_size, settings.context
    order = torch.randperm((len(row) - 1) // context)
    for start in range(0, len(order) - size + 1, size):
        places = order[start : start + size, None] * context + torch.arange(context + 1)
        tokens = row[places].long()
        tokens = tokens.to(settings.device)
        yield tokens[:, :-1], tokens[:, 1:]


def rate(step: int, settings: PlainSettings) -> float:
    """Return the learning rate of a step: a linear warm-up, then a cosine."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    progress = (step - settings.warmup_steps) / (settings.all_steps - settings.warmup_steps)
    return settings.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, row: torch.Tensor, settings: PlainSettings, *, step: int = 0
) -> None:
    """Train for an epoch."""
    model.train()
    for inputs, labels in batches(row, settings):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, settings)
        with torch.autocast(settings.device, dtype=settings.half, enabled=settings.half is not None):
            scores = model(inputs)
            loss = functional.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % settings.print_steps == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
