"""Evaluate a model on the whole test set. All ranks together count every sample once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from trainer.data.batch import NO_LABEL, Data
from trainer.exit_codes import DataError
from trainer.report.gallery import Collector, Gallery
from trainer.runtime import Runtime
from trainer.runtime.base import Decision

TOP_K = 5
"""Number of highest-scored classes in the wider accuracy, as in ImageNet's top-5."""


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    accuracy: float
    """Percent of samples whose class has the highest score."""
    top5: float
    """Percent of samples whose class is among the five highest scores."""
    loss: float
    """Mean loss over samples."""
    gallery: Gallery | None
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
        ranks: dict[str, Any] = {
            "dist_sync_fn": sum_over_ranks,
            "distributed_available_fn": lambda: runtime.world > 1,
        }
        # Without validation, which would wait for the device at every batch.
        options: dict[str, Any] = {"average": "micro", "ignore_index": NO_LABEL, "validate_args": False, **ranks}
        self._first = MulticlassAccuracy(classes, **options)
        self._among = MulticlassAccuracy(classes, top_k=min(TOP_K, classes), **options)
        self._loss = SumMetric(nan_strategy="disable", **ranks).set_dtype(torch.float64)
        self._counted = SumMetric(nan_strategy="disable", **ranks).set_dtype(torch.float64)
        self._all = (self._first, self._among, self._loss, self._counted)
        for metric in self._all:
            metric.to(runtime.metrics_device)

    def add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count a batch of the test set."""
        logits, labels = (tensor.to(self._runtime.metrics_device) for tensor in (logits.float(), labels))
        self._first.update(logits, labels)
        self._among.update(logits, labels)
        self._loss.update(functional.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_LABEL))
        self._counted.update((labels != NO_LABEL).sum())

    def take(self) -> tuple[float, float, float, int]:
        """Return both accuracies in percent, the mean loss and the number of counted samples, over all ranks."""
        first, among, loss, counted = (float(metric.compute()) for metric in self._all)
        return 100 * first, 100 * among, loss / max(counted, 1), int(counted)


def evaluate(
    model: nn.Module, data: Data, runtime: Runtime, preempted: Callable[[], bool], *, gallery: bool
) -> Evaluation | None:
    """Evaluate every test sample. All ranks must call it. Returns None if one of them was preempted meanwhile.

    The callback returns True at a batch if this rank was asked to stop.
    """
    scores = Scores(data.classes, runtime)
    seen = Collector(data.classes, runtime.device) if gallery else None
    runtime.sync_buffers(model)
    model.eval()
    stopped = False
    with runtime.evaluating():
        for images, labels in data.test_batches(rank=runtime.rank, world=runtime.world):
            stopped = runtime.stop_requested(is_local=preempted())
            if stopped:
                break
            with runtime.autocast():
                logits = model(images)
            if seen:
                seen.add(images, logits, labels)
            runtime.flush()
            scores.add(logits, labels)
    # A rank that has finished its batches does not poll any more.
    if runtime.all_reduce_decision_now(Decision.PREEMPT if stopped else Decision.CONTINUE) == Decision.PREEMPT:
        return None
    with runtime.evaluating():
        first, among, loss, counted = scores.take()
    unread = sum(runtime.gather(len(data.broken)))
    assert 0 <= data.num_tests - counted <= unread, f"{counted} test samples were counted, not {data.num_tests}"
    if not counted:
        raise DataError(f"none of {data.num_tests} test samples can be read; check the data set")
    return Evaluation(first, among, loss, seen.take(runtime) if seen else None)
