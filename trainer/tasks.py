"""Task: a recipe's own part of a run, such as data, model, loss and evaluation. All recipes share the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from trainer.config import DigitsConfig, ImagenetConfig, LanguageConfig, RecipeConfig
from trainer.data.datasets import NO_LABEL, Data, load_data
from trainer.exit_codes import DataError
from trainer.models import build_model, build_optimizer
from trainer.runtime.base import Decision, Runtime
from trainer.step_log import Meter, flops_per_sample

if TYPE_CHECKING:
    from trainer.reporter import Reporter

GALLERY_SAMPLES = 8
"""Number of images per rank in a gallery."""
WHITE = 255
TOP_K = 5
"""The k of the top-k accuracy, as in ImageNet's top-5."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An image of the test set."""

    pixels: npt.NDArray[np.uint8]
    """Height x width, or height x width x 3 in colour, with values stretched to 0..255."""
    label: int
    """Class of the image."""
    predicted: int
    """The class that the model predicts."""


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Images and counts for a sink that can display them."""

    confusion: npt.NDArray[np.int64] | None
    """Number of test samples per class (row) and predicted class (column), over all ranks. Only rank 0 has it."""
    samples: list[Sample] = field(default_factory=list)
    """The first test images of this rank."""


class Collector:
    """Collector of the gallery of an evaluation. It counts on the device."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self._classes = classes
        # The last element counts samples without a class.
        self._counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=device)
        self._samples: list[Sample] = []

    def add(self, images: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch of the test set and the model's output."""
        predicted = logits.argmax(dim=1)
        places = torch.where(labels >= 0, labels * self._classes + predicted, self._classes**2)
        self._counts += torch.bincount(places, minlength=len(self._counts))
        for place in range(min(GALLERY_SAMPLES - len(self._samples), len(labels))):
            pixels = _to_pixels(images[place])
            self._samples.append(Sample(pixels=pixels, label=int(labels[place]), predicted=int(predicted[place])))

    def take(self, runtime: Runtime) -> Gallery:
        """Return the gallery of this rank. All ranks must call this."""
        counts = runtime.sum(self._counts)[:-1].cpu().numpy().reshape(self._classes, self._classes)
        return Gallery(confusion=counts if runtime.rank == 0 else None, samples=self._samples)


def _to_pixels(image: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return an image tensor (channels x height x width, any range) as pixels to display."""
    plain = image.detach().float().cpu()
    low, high = plain.amin(), plain.amax()
    levels: npt.NDArray[Any] = ((plain - low) / (high - low).clamp(min=1e-9) * WHITE).byte().numpy()
    return levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    measures: Mapping[str, float]
    """Measures by name, among them `loss`."""
    gallery: Gallery | None = None
    """Confusion matrix and samples, if requested."""


class Scores:
    """Accuracies and loss on the test set, by torchmetrics. Each rank counts its part, and the runtime adds them up."""

    def __init__(self, classes: int, runtime: Runtime) -> None:
        # Imported at the first evaluation, so that the import does not delay the first step.
        from torchmetrics import SumMetric
        from torchmetrics.classification import MulticlassAccuracy

        def sum_over_ranks(part: torch.Tensor, group: object) -> list[torch.Tensor]:
            del group
            return [runtime.sum(part)]

        self._runtime = runtime
        ranks: dict[str, Any] = {"dist_sync_fn": sum_over_ranks, "distributed_available_fn": lambda: runtime.world > 1}
        # Turn off validation, which would wait for the device at every batch.
        options: dict[str, Any] = {"average": "micro", "ignore_index": NO_LABEL, "validate_args": False, **ranks}
        accuracies = [MulticlassAccuracy(classes, top_k=k, **options) for k in (1, min(TOP_K, classes))]
        sums = [SumMetric(nan_strategy="disable", **ranks).set_dtype(torch.float64) for _ in range(2)]
        self._all = [metric.to(runtime.data_device) for metric in (*accuracies, *sums)]

    def add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count a batch of the test set."""
        logits, labels = (tensor.to(self._runtime.data_device) for tensor in (logits.float(), labels))
        top1, top5, loss, counted = self._all
        top1.update(logits, labels)
        top5.update(logits, labels)
        loss.update(functional.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_LABEL))
        counted.update((labels != NO_LABEL).sum())

    def take(self) -> tuple[float, float, float, int]:
        """Return both accuracies in percent, the mean loss and the number of counted samples, over all ranks."""
        top1, top5, loss, counted = (float(metric.compute()) for metric in self._all)
        return 100 * top1, 100 * top5, loss / max(counted, 1), int(counted)


def evaluate(
    model: nn.Module, data: Data, runtime: Runtime, stop_requested: Callable[[], bool], *, gallery: bool
) -> Evaluation | None:
    """Evaluate every test sample. All ranks must call this. Returns None if a rank was preempted meanwhile.

    `stop_requested` returns True if this rank was asked to stop.
    """
    scores = Scores(data.classes, runtime)
    collector = Collector(data.classes, runtime.device) if gallery else None

    def add(images: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        if collector:
            collector.add(images, logits, labels)
        runtime.flush()
        scores.add(logits, labels)

    if not run_test_set(model, data, runtime, stop_requested, add):
        return None
    with runtime.evaluating():
        top1, top5, loss, counted = scores.take()
    num_broken = sum(runtime.gather(len(data.broken)))
    assert 0 <= data.num_tests - counted <= num_broken, f"{counted} test samples were counted, not {data.num_tests}"
    if not counted:
        raise DataError(f"none of {data.num_tests} test samples can be read; check the data set")
    measures = {"accuracy": top1, "top5": top5, "loss": loss}
    return Evaluation(measures, collector.take(runtime) if collector else None)


def run_test_set(
    model: nn.Module,
    data: Data,
    runtime: Runtime,
    stop_requested: Callable[[], bool],
    add: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None],
) -> bool:
    """Call `add` with inputs, output and labels of each test batch. Return False if a rank was preempted meanwhile."""
    runtime.sync_buffers(model)
    model.eval()
    is_stopping = False
    with runtime.evaluating():
        for inputs, labels in data.test_batches(rank=runtime.data_rank, world=runtime.data_world):
            if is_stopping := runtime.stop_requested(is_local=stop_requested()):
                break
            with runtime.autocast():
                output = model(inputs)
            add(inputs, output, labels)
    # Agree once more, because a rank that has finished its batches no longer polls for stop requests.
    agreed = runtime.all_reduce_decision_now(Decision.PREEMPT if is_stopping else Decision.CONTINUE)
    return agreed != Decision.PREEMPT


class Task(Protocol):
    """A recipe's own part of a run. Its constructor loads the data."""

    data: Data
    units_per_sample: int = 1
    """Number of units that a sample counts in the reported rates: 1, or its number of tokens."""
    evaluate_steps: int = 0
    """Steps between two evaluations within an epoch. 0 evaluates only at the end of each epoch."""
    main_measure: str
    """Name of the evaluation measure that the run reports at its end, with the best value."""
    best: Callable[[float, float], float] = staticmethod(max)
    """Function that returns the better of two values of the main measure."""

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return the model on its device, with its initial weights, and its optimizer."""

    def describe(self) -> dict[str, Any]:
        """Return the facts about the model that an export needs, as values for JSON."""
        return {}

    def meter(self) -> Meter:
        """Return the meter that sums up the measures of training steps."""

    def flops_per_unit(self, model: nn.Module) -> float | None:
        """Return the operations of a training step for one unit of the rates, or None if they cannot be counted."""

    def loss(self, output: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum that training minimises, and the sum of the losses that it reports."""

    def before_update(self, model: nn.Module, meter: Meter) -> None:
        """Change or measure the averaged gradients before the optimizer uses them."""
        del model, meter

    def evaluate(self, model: nn.Module, stop_requested: Callable[[], bool]) -> Evaluation | None:
        """Evaluate the test set. All ranks must call this. Returns None if a rank was preempted meanwhile."""

    def after_evaluation(
        self, model: nn.Module, report: Reporter, step: int, stop_requested: Callable[[], bool]
    ) -> None:
        """Report more about the model, such as a sample of text. All ranks must call this."""
        del model, report, step, stop_requested


class ImageTask(Task):
    """Classification of images."""

    main_measure = "accuracy"

    def __init__(self, config: DigitsConfig | ImagenetConfig, runtime: Runtime) -> None:
        self._config, self._runtime = config, runtime
        self.data = runtime.feed(load_data(config, runtime))

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config = self._config
        model = build_model(config, classes=self.data.classes, channels=self.data.sample_shape[0])
        model.to(self._runtime.device)
        if config.channels_last:
            model = model.to(memory_format=torch.channels_last)
        return model, build_optimizer(config, list(model.parameters()), betas=(0.9, 0.999))

    def meter(self) -> Meter:
        return Meter(self._runtime.device)

    def flops_per_unit(self, model: nn.Module) -> float | None:
        return flops_per_sample(model, self.data.sample_shape)

    def loss(self, output: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the cross entropies as both values."""
        smoothing = self._config.label_smoothing
        loss = functional.cross_entropy(output, labels, reduction="sum", label_smoothing=smoothing)
        return loss, loss

    def evaluate(self, model: nn.Module, stop_requested: Callable[[], bool]) -> Evaluation | None:
        """Evaluate the test images, with a gallery for Weights & Biases."""
        gallery = self._config.wandb != "off"
        return evaluate(model, self.data, self._runtime, stop_requested, gallery=gallery)


def build_task(config: RecipeConfig, runtime: Runtime) -> Task:
    """Return the recipe's task. Raises ConfigurationError or DataError."""
    if isinstance(config, LanguageConfig):
        # Imported here because the other recipes do not need it.
        from trainer.language.task import LanguageTask

        return LanguageTask(config, runtime)
    return ImageTask(config, runtime)
