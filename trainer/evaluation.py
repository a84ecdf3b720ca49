"""How good a model is on the whole test set, every sample counted once by all ranks together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import nn
from torch.nn import functional

from trainer.batch import Data
from trainer.gallery import Collector, Gallery
from trainer.metrics import Meter
from trainer.runtime import Runtime


class Evaluation(NamedTuple):
    """What was found."""

    accuracy: float
    """Percent."""
    loss: float
    """Mean over samples."""
    gallery: Gallery | None
    """Confusion matrix and samples, where they were asked for."""


def evaluate(model: nn.Module, data: Data, runtime: Runtime, beat: Callable[[], None], *, gallery: bool) -> Evaluation:
    """Look at every test sample; all ranks must call it. `beat` is called at each batch."""
    meter = Meter(runtime.device)
    seen = Collector(data.classes, runtime.device) if gallery else None
    model.eval()
    with runtime.evaluating(), runtime.autocast():
        for images, labels in data.test_batches(rank=runtime.rank, world=runtime.world):
            beat()
            logits = model(images)
            meter.add(functional.cross_entropy(logits, labels, reduction="sum"), logits, labels)
            if seen:
                seen.add(images, logits, labels)
            runtime.hand_over()
        loss, accuracy, counted = meter.take(runtime.sum(meter.sums()))
    assert counted == data.num_tests, f"{counted} test samples were counted, not {data.num_tests}"
    return Evaluation(accuracy, loss, seen.take(runtime) if seen else None)
