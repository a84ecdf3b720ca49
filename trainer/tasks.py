"""A recipe's own part of a run: data, model, loss, measures and evaluation. All recipes share the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from trainer.config import DigitsConfig, ImagenetConfig, LanguageConfig, RecipeConfig
from trainer.data.datasets import Data, load_data
from trainer.evaluation import Evaluation, evaluate
from trainer.models import build_model, build_optimizer
from trainer.step_log import Meter, flops_per_sample

if TYPE_CHECKING:
    from trainer.reporter import Reporter
    from trainer.runtime import Runtime


class Task(Protocol):
    """A recipe. Its constructor loads the data."""

    data: Data
    units_per_sample: int = 1
    """Number of units of a sample that the rates count: 1, or its number of tokens."""
    evaluate_steps: int = 0
    """Steps between two evaluations within an epoch. 0 evaluates only at the end of each epoch."""
    main_measure: str
    """Measure of an evaluation that the end of the run reports, with its best value."""
    best: Callable[[float, float], float] = staticmethod(max)

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return the model on its device, with its first weights, and its optimiser."""

    def describe(self) -> dict[str, Any]:
        """Return what an export needs to know about the model, as JSON."""
        return {}

    def meter(self) -> Meter:
        """Return the meter that sums up the measures of training steps."""

    def flops_per_unit(self, model: nn.Module) -> float | None:
        """Return the operations of a training step per unit of the rates, or None if they cannot be counted."""

    def loss(self, output: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum over the labels that training lowers, and the sum of the losses that it reports."""

    def before_update(self, model: nn.Module, meter: Meter) -> None:
        """Change or measure the averaged gradients before the optimiser uses them."""
        del model, meter

    def evaluate(self, model: nn.Module, stop_requested: Callable[[], bool]) -> Evaluation | None:
        """Evaluate the test set. All ranks must call it. Returns None if one of them was preempted meanwhile."""

    def after_evaluation(
        self, model: nn.Module, report: Reporter, step: int, stop_requested: Callable[[], bool]
    ) -> None:
        """Report more about the model, such as a sample of text. All ranks must call it."""
        del model, report, step, stop_requested


class ImageTask(Task):
    """Classification of images."""

    main_measure = "accuracy"

    def __init__(self, config: DigitsConfig | ImagenetConfig, runtime: Runtime) -> None:
        self._config, self._runtime = config, runtime
        self.data = runtime.feed(load_data(config, runtime))

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return the model and its optimiser."""
        config = self._config
        model = build_model(config, classes=self.data.classes, channels=self.data.sample_shape[0])
        model.to(self._runtime.device)
        if config.channels_last:
            model = model.to(memory_format=torch.channels_last)
        return model, build_optimizer(config, list(model.parameters()), betas=(0.9, 0.999))

    def meter(self) -> Meter:
        """Return the meter that sums up loss and accuracy."""
        return Meter(self._runtime.device)

    def flops_per_unit(self, model: nn.Module) -> float | None:
        """Return the operations per image."""
        return flops_per_sample(model, self.data.sample_shape)

    def loss(self, output: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the cross entropies, twice."""
        smoothing = self._config.label_smoothing
        loss = functional.cross_entropy(output, labels, reduction="sum", label_smoothing=smoothing)
        return loss, loss

    def evaluate(self, model: nn.Module, stop_requested: Callable[[], bool]) -> Evaluation | None:
        """Count the test images that the model classifies correctly."""
        gallery = self._config.wandb != "off"
        return evaluate(model, self.data, self._runtime, stop_requested, gallery=gallery)


def build_task(config: RecipeConfig, runtime: Runtime) -> Task:
    """Return the recipe's task. Raises ConfigurationError or DataError."""
    if isinstance(config, LanguageConfig):
        # Imported here because the other recipes do not need it.
        from trainer.language.task import LanguageTask

        return LanguageTask(config, runtime)
    return ImageTask(config, runtime)
