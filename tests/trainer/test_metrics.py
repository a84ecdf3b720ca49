"""A meter counts each batch once, whenever it is read."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.report.metrics import CPU_BATCHES, LazyMeter, Meter


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Batches of uneven sizes: the sum of losses, logits and labels of each."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for number in range(count):
        size = 3 + number % 2
        logits = torch.randn(size, 4, generator=generator)
        found.append((logits.sum(), logits, torch.randint(4, (size,), generator=generator)))
    return found


@pytest.mark.parametrize("kind", [Meter, LazyMeter])
@pytest.mark.parametrize("count", [1, 2, CPU_BATCHES, 2 * CPU_BATCHES + 3])
def test_meter_counts_every_batch_once(kind: type[Meter], count: int) -> None:
    meter = kind(torch.device("cpu"))
    expected = (0.0, 0, 0)
    for part in (batches(count), batches(count + 1)[count:]):
        for loss_sum, logits, labels in part:
            meter.add(loss_sum, logits, labels)
            expected = (
                expected[0] + loss_sum.item(),
                expected[1] + int((logits.argmax(dim=1) == labels).sum()),
                expected[2] + len(labels),
            )
        loss, accuracy, samples = meter.take(meter.sums())
        assert samples == expected[2]
        assert loss == pytest.approx(expected[0] / expected[2])
        assert accuracy == pytest.approx(100 * expected[1] / expected[2])
        expected = (0.0, 0, 0)


@pytest.mark.parametrize("kind", [Meter, LazyMeter])
def test_meter_detects_loss_that_is_not_finite(kind: type[Meter]) -> None:
    meter = kind(torch.device("cpu"))
    for loss_sum, logits, labels in batches(3):
        meter.add(loss_sum, logits, labels)
    assert meter.is_finite()
    meter.add(torch.tensor(math.nan), *batches(1)[0][1:])
    assert not meter.is_finite()


def test_meter_sums_stay_unchanged() -> None:
    meter = LazyMeter(torch.device("cpu"))
    first, second = batches(2)
    meter.add(*first)
    sums = meter.sums()
    meter.add(*second)
    assert meter.take(sums)[2] == len(first[2])
