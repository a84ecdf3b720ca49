"""Evaluate a model on the whole test set: accuracies, loss, confusion matrix and sample images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from trainer.data.datasets import NO_LABEL, Data
from trainer.exit_codes import DataError
from trainer.runtime.base import Decision, Runtime

SAMPLES = 8
"""Number of images per rank."""
WHITE = 255
TOP_K = 5
"""Number of highest-scored classes in the wider accuracy, as in ImageNet's top-5."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An image of the test set."""

    pixels: npt.NDArray[np.uint8]
    """Height x width, or x 3 if it has colours, stretched to 0..255."""
    label: int
    """Its class."""
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
    """Collect a gallery during an evaluation. Counting stays on the device."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self._classes = classes
        # One more element for samples without a class.
        self._counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=device)
        self._samples: list[Sample] = []

    def add(self, images: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch of the test set and the model's output."""
        predicted = logits.argmax(dim=1)
        places = torch.where(labels >= 0, labels * self._classes + predicted, self._classes**2)
        self._counts += torch.bincount(places, minlength=len(self._counts))
        for place in range(min(SAMPLES - len(self._samples), len(labels))):
            pixels = _to_pixels(images[place])
            self._samples.append(Sample(pixels=pixels, label=int(labels[place]), predicted=int(predicted[place])))

    def take(self, runtime: Runtime) -> Gallery:
        """Return the gallery of this rank. Every rank must call it."""
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
    """Measures of a `test` event by name, with `loss`."""
    gallery: Gallery | None = None
    """Confusion matrix and samples, if requested."""


class Scores:
    """torchmetrics' sums over the test set. Each rank counts its part, and the runtime adds up the parts."""

    def __init__(self, classes: int, runtime: Runtime) -> None:
        # Imported at the first evaluation, so that the first step does not wait for it.
        from torchmetrics import SumMetric
        from torchmetrics.classification import MulticlassAccuracy

        def sum_over_ranks(part: torch.Tensor, group: object) -> list[torch.Tensor]:
            del group
            return [runtime.sum(part)]

        self._runtime = runtime
        ranks: dict[str, Any] = {"dist_sync_fn": sum_over_ranks, "distributed_available_fn": lambda: runtime.world > 1}
        # Without validation, which would wait for the device at every batch.
        options: dict[str, Any] = {"average": "micro", "ignore_index": NO_LABEL, "validate_args": False, **ranks}
        accuracies = [MulticlassAccuracy(classes, top_k=most, **options) for most in (1, min(TOP_K, classes))]
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
    model: nn.Module, data: Data, runtime: Runtime, preempted: Callable[[], bool], *, gallery: bool
) -> Evaluation | None:
    """Evaluate every test sample. All ranks must call it. Returns None if one of them was preempted meanwhile.

    The callback returns True at a batch if this rank was asked to stop.
    """
    scores = Scores(data.classes, runtime)
    collector = Collector(data.classes, runtime.device) if gallery else None

    def add(images: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        if collector:
            collector.add(images, logits, labels)
        runtime.flush()
        scores.add(logits, labels)

    if not run_test_set(model, data, runtime, preempted, add):
        return None
    with runtime.evaluating():
        top1, top5, loss, counted = scores.take()
    unread = sum(runtime.gather(len(data.broken)))
    assert 0 <= data.num_tests - counted <= unread, f"{counted} test samples were counted, not {data.num_tests}"
    if not counted:
        raise DataError(f"none of {data.num_tests} test samples can be read; check the data set")
    measures = {"accuracy": top1, "top5": top5, "loss": loss}
    return Evaluation(measures, collector.take(runtime) if collector else None)


def run_test_set(
    model: nn.Module,
    data: Data,
    runtime: Runtime,
    preempted: Callable[[], bool],
    add: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None],
) -> bool:
    """Call `add` with inputs, output and labels of each test batch. Return False if a rank was preempted meanwhile."""
    runtime.sync_buffers(model)
    model.eval()
    is_stopping = False
    with runtime.evaluating():
        for inputs, labels in data.test_batches(rank=runtime.data_rank, world=runtime.data_world):
            if is_stopping := runtime.stop_requested(is_local=preempted()):
                break
            with runtime.autocast():
                output = model(inputs)
            add(inputs, output, labels)
    # A rank that has finished its batches does not poll any more.
    agreed = runtime.all_reduce_decision_now(Decision.PREEMPT if is_stopping else Decision.CONTINUE)
    return agreed != Decision.PREEMPT
