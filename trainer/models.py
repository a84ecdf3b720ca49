"""What is trained, and how: models by name (the digits' own, torchvision's, timm's), optimisers, learning rate."""

from __future__ import annotations

import math
from difflib import get_close_matches

import torch
from torch import nn

from trainer.config import DigitsConfig, ImagenetConfig, TrainConfig
from trainer.exit_codes import ConfigurationError

DIGITS_NETWORK = "digits-cnn"


def build_model(config: DigitsConfig | ImagenetConfig, *, classes: int, channels: int) -> nn.Module:
    """A model with random weights; raises ConfigurationError where no library has the name."""
    if isinstance(config, ImagenetConfig):
        return _by_name(config.arch, classes=classes)
    return digits_network(classes=classes, channels=channels)


def signature(config: TrainConfig) -> str:
    """Says what model and optimiser a checkpoint is of: only one of the same can go on from it."""
    model = f"{config.arch}-{config.num_classes}" if isinstance(config, ImagenetConfig) else DIGITS_NETWORK
    return f"{model}/{config.optimizer}"


def digits_network(*, classes: int, channels: int) -> nn.Module:
    """Two convolutions and two linear layers, 455,000 weights, for 28 x 28 images.

    It has no batch statistics: ranks then compute exactly what one process would on all their samples.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of the settings: one kernel updates all weights at once, or on XLA the graph of the step does."""
    on_xla = any(weight.device.type == "xla" for weight in model.parameters())
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "fused": not on_xla}
    if config.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=0.9, nesterov=True, **settings)  # type: ignore[arg-type]  # mixed dict
    # Counted on the device: a step number from the host would be another graph at every step.
    return torch.optim.AdamW(model.parameters(), capturable=on_xla, **settings)  # type: ignore[arg-type]  # mixed dict


def learning_rate(config: TrainConfig, progress: float) -> float:
    """The learning rate at a share (0 to 1) of the whole run: up along a line, then down along a cosine."""
    if progress < config.warmup:
        return config.learning_rate * progress / config.warmup
    return config.learning_rate * (1 + math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup or 1))) / 2


def _by_name(arch: str, *, classes: int) -> nn.Module:
    # Imported here because these two libraries cost seconds of start-up that other recipes do not pay.
    import torchvision

    if arch in torchvision.models.list_models():
        model: nn.Module = torchvision.models.get_model(arch, weights=None, num_classes=classes)
        return model
    import timm

    name = arch.removeprefix("timm/")
    if timm.is_model(name):
        return timm.create_model(name, pretrained=False, num_classes=classes)
    near = get_close_matches(name, sorted({*torchvision.models.list_models(), *timm.list_models()}), n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "see torchvision.models.list_models(), timm.list_models()"
    raise ConfigurationError(f"arch is {arch!r}; allowed are the models of torchvision and timm: {hint}")
