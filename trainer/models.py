"""Models for images (the digits network, torchvision's, timm's), optimizers and the learning rate."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from trainer.config import DigitsConfig, ImagenetConfig, LanguageConfig, TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.language.sizes import BPE, BYTES

DIGITS_NETWORK = "digits-cnn"
AUXILIARY_LOSS_MODELS = ("googlenet", "inception_v3")
"""Models of torchvision that return auxiliary scores during training by default."""
MODEL_LISTS = "see torchvision.models.list_models(module=torchvision.models), timm.list_models()"


def build_model(config: DigitsConfig | ImagenetConfig, *, classes: int, channels: int) -> nn.Module:
    """Return a model for images with random weights. Raises ConfigurationError if no library has that model."""
    if isinstance(config, ImagenetConfig):
        return _by_name(config.arch, classes=classes, size=config.image_size)
    return digits_network(classes=classes, channels=channels)


def signature(config: TrainConfig) -> str:
    """Return a text with the model and the optimizer. A run resumes only from checkpoints with its signature."""
    model = f"{config.arch}-{config.num_classes}" if isinstance(config, ImagenetConfig) else DIGITS_NETWORK
    if isinstance(config, LanguageConfig):
        tokens = {BYTES: "", BPE: "-bpe"}.get(config.tokenizer, "-file")
        model = f"{config.sizes}-{config.vocabulary}{tokens}"
        if config.lora_rank:
            model += f"-lora-{config.lora_rank}-{config.lora_alpha:g}-{config.init_from}"
    return f"{model}/{config.optimizer}"


def digits_network(*, classes: int, channels: int) -> nn.Module:
    """Return a network for 28 x 28 images: two convolutions and two linear layers, with 455,000 weights.

    The network has no batch statistics, so that several ranks compute the same as one rank with all samples.
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


def build_optimizer(
    config: TrainConfig, weights: Sequence[nn.Parameter] | Sequence[dict[str, Any]], *, betas: tuple[float, float]
) -> torch.optim.Optimizer:
    """Return the optimizer. A fused kernel updates the weights; on XLA, the step's graph updates them."""
    groups = (weight["params"] if isinstance(weight, dict) else [weight] for weight in weights)
    on_xla = any(weight.device.type == "xla" for group in groups for weight in group)
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "fused": not on_xla}
    if config.optimizer == "sgd":
        return torch.optim.SGD(weights, momentum=0.9, nesterov=True, **settings)  # type: ignore[arg-type]  # mixed dict
    # Count steps on the device: a step number from the host would cause a new graph at every step.
    return torch.optim.AdamW(weights, betas=betas, capturable=on_xla, **settings)  # type: ignore[arg-type]  # mixed dict


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Return the learning rate after the share `progress` (0 to 1) of the run: a linear warm-up, then the schedule."""
    if progress < config.warmup:
        return config.learning_rate * progress / config.warmup
    start = config.warmup if config.schedule == "cosine" else max(config.warmup, 1 - config.decay)
    done = max(0.0, progress - start) / (1 - start or 1)
    left = (1 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else 1 - done
    return config.learning_rate * (config.final_rate + (1 - config.final_rate) * left)


def _by_name(arch: str, *, classes: int, size: int) -> nn.Module:
    # Imported here because these two libraries take seconds to load, and other recipes do not need them.
    import torchvision

    classifiers: list[str] = torchvision.models.list_models(module=torchvision.models)
    if arch in classifiers:
        options: dict[str, Any] = {"num_classes": classes}
        if arch in AUXILIARY_LOSS_MODELS:
            options |= {"aux_logits": False, "init_weights": True}
        if arch.startswith("vit_"):
            options["image_size"] = size
        with _explain_size_errors(arch, size):
            model: nn.Module = torchvision.models.get_model(arch, weights=None, **options)
        return model
    if arch in torchvision.models.list_models():
        raise ConfigurationError(f"arch = {arch!r}: must be an image classifier; {MODEL_LISTS}")
    import timm

    name = arch.removeprefix("timm/")
    if timm.is_model(name):
        try:
            fixed = timm.get_pretrained_cfg(name)
        except RuntimeError as error:  # an unknown tag of pretrained weights
            allowed = "a model name of timm, without a tag or with the tag of existing weights"
            raise ConfigurationError(f"arch = {arch!r}: must be {allowed}; {error}") from None
        is_resized = fixed and fixed.fixed_input_size and fixed.input_size[-1] != size
        given: dict[str, Any] = {"img_size": size} if is_resized else {}
        with _explain_size_errors(arch, size if given else None):
            return timm.create_model(name, pretrained=False, num_classes=classes, **given)
    near = get_close_matches(name, sorted({*classifiers, *timm.list_models()}), n=3)
    hint = f"did you mean {', '.join(near)}?" if near else MODEL_LISTS
    raise ConfigurationError(f"arch = {arch!r}: must be a model of torchvision or timm; {hint}")


@contextmanager
def _explain_size_errors(arch: str, size: int | None) -> Iterator[None]:
    """Turn the error of a model that does not support the image size into ConfigurationError."""
    try:
        yield
    except (AssertionError, RuntimeError, TypeError, ValueError, ZeroDivisionError) as error:
        if size is None:
            raise
        allowed = "a size that the model supports, usually 224"
        raise ConfigurationError(f"image_size = {size}: must be {allowed}; {arch} says: {error}") from error


def on_meta_device(model: nn.Module) -> nn.Module:
    """Return a copy of the model with meta tensors as weights."""
    shapes: dict[int, torch.Tensor] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        is_weight = isinstance(tensor, nn.Parameter)
        shapes[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad) if is_weight else empty
    return copy.deepcopy(model, shapes)
