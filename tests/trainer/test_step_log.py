"""Meters, FLOPs and times of steps. Times are measured on the CPU and on an emulated asynchronous device."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import nn

from trainer.config import DigitsConfig, ImagenetConfig
from trainer.data.datasets import NO_LABEL
from trainer.models import build_model
from trainer.step_log import CPU_BATCHES, Meter, StepClock, flops_per_sample

GIGA = 10**9
PUBLISHED_GMACS = {
    "regnet_y_400mf": 0.402,
    "regnet_x_800mf": 0.8,
    "resnet50": 4.089,
    "resnext50_32x4d": 4.23,
    "mobilenet_v3_small": 0.057,
    "vit_b_16": 17.564,
}
"""Multiplications of a forward pass in 10^9, from `meta` of torchvision's weights."""
WAIT_SECONDS, WORK_SECONDS = 0.02, 0.05
"""Seconds that a step waits for data, and seconds that it computes."""


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return batches of different sizes. A batch has a sum of losses, logits and labels."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for number in range(count):
        size = 3 + number % 2
        logits = torch.randn(size, 4, generator=generator)
        found.append((logits.sum(), logits, torch.randint(4, (size,), generator=generator)))
    return found


@pytest.mark.parametrize("count", [1, 2, CPU_BATCHES, 2 * CPU_BATCHES + 3])
def test_meter_counts_every_batch_once(count: int) -> None:
    meter = Meter(torch.device("cpu"))
    for part in (batches(count), batches(count + 1)[count:]):
        loss, num_right, num_samples = 0.0, 0, 0
        for loss_sum, logits, labels in part:
            meter.add(loss_sum, logits, labels)
            loss += loss_sum.item()
            num_right += int((logits.argmax(dim=1) == labels).sum())
            num_samples += len(labels)
        means, samples = meter.take(meter.sums())
        assert samples == num_samples
        assert means["loss"] == pytest.approx(loss / num_samples)
        assert means["accuracy"] == pytest.approx(100 * num_right / num_samples)


def test_meter_detects_loss_that_is_not_finite() -> None:
    meter = Meter(torch.device("cpu"))
    for loss_sum, logits, labels in batches(3):
        meter.add(loss_sum, logits, labels)
    assert meter.is_finite()
    meter.add(torch.tensor(math.nan), *batches(1)[0][1:])
    assert not meter.is_finite()


def test_meter_sums_do_not_contain_later_batches() -> None:
    meter = Meter(torch.device("cpu"))
    first, second = batches(2)
    meter.add(*first)
    sums = meter.sums()
    meter.add(*second)
    assert meter.take(sums)[1] == len(first[2])


def test_meter_ignores_samples_without_label() -> None:
    meter = Meter(torch.device("cpu"))
    loss_sum, logits, labels = batches(1)[0]
    meter.add(loss_sum, logits, torch.cat([labels[:-1], torch.tensor([NO_LABEL])]))
    assert meter.take(meter.sums())[1] == len(labels) - 1


@pytest.mark.parametrize("arch", PUBLISHED_GMACS)
def test_flops_of_a_step_are_nearly_three_forward_passes(arch: str) -> None:
    model = build_model(ImagenetConfig(arch=arch), classes=1000, channels=3)
    counted = flops_per_sample(model, (3, 224, 224))
    assert counted is not None
    # The first layer computes no gradient of the images, so a step has slightly fewer than three passes.
    assert 0.94 < counted / (6 * GIGA * PUBLISHED_GMACS[arch]) < 1.001


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
def test_flops_of_a_convolution_with_four_groups_are_a_quarter(layer: type[nn.Conv2d | nn.ConvTranspose2d]) -> None:
    counted = {}
    for groups in (1, 4):
        model = nn.Sequential(nn.Conv2d(3, 8, 1), layer(8, 8, 3, groups=groups))
        found, first = flops_per_sample(model, (3, 9, 9)), flops_per_sample(model[:1], (3, 9, 9))
        assert found is not None
        assert first is not None
        # Subtract the first layer, which computes no gradient of its input.
        counted[groups] = found - first
    assert counted[1] == 4 * counted[4]


def test_flops_count_leaves_model_unchanged() -> None:
    model = build_model(DigitsConfig(), classes=10, channels=1).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    assert flops_per_sample(model, (1, 28, 28))
    assert torch.equal(state, torch.get_rng_state())
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_flops_of_value_dependent_model_are_none() -> None:
    class ValueDependent(nn.Linear):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images) if images.sum() > 0 else images

    assert flops_per_sample(ValueDependent(3, 3), (3,)) is None


def run_step(clock: StepClock) -> None:
    clock.begin()
    time.sleep(WAIT_SECONDS)
    clock.data_ready()
    time.sleep(WORK_SECONDS)
    clock.gradients_ready()
    clock.end()


def test_step_time_is_split_into_data_wait_and_useful_time() -> None:
    clock = StepClock(nn.Linear(1, 1), torch.device("cpu"), world=1)
    for _ in range(2):
        run_step(clock)
    times = clock.take()
    assert times.steps == 2
    assert 2 * WAIT_SECONDS <= times.data < times.total - 2 * WORK_SECONDS + 0.001
    assert times.all_reduce == 0
    assert clock.take().steps == 0


class Queue:
    """Queue of a device that works while the host continues."""

    def __init__(self) -> None:
        self.host = self.done = 0.0
        """Current time of the host, and time at which the device is done, in seconds."""

    def work(self, seconds: float) -> None:
        self.done = max(self.done, self.host) + seconds


def test_device_with_queued_work_does_not_wait_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()

    class Event:
        """Event of the queue, instead of torch.cuda.Event."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            """Record the time at which the device reaches this point of the queue."""
            self.at = max(queue.done, queue.host)

        def synchronize(self) -> None:
            queue.host = max(queue.host, self.at)

        def elapsed_time(self, end: Event) -> float:
            return 1000 * (end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = StepClock(nn.Linear(1, 1), torch.device("cuda"), world=1)
    for _ in range(10):
        clock.begin()
        queue.host += WAIT_SECONDS
        clock.data_ready()
        queue.work(WORK_SECONDS)
        clock.gradients_ready()
        clock.end()
    times = clock.take()
    assert times.data == pytest.approx(WAIT_SECONDS), "the device must wait for data at the first step only"
    assert times.total == pytest.approx(WAIT_SECONDS + 10 * WORK_SECONDS)
    assert queue.host == pytest.approx(times.total), "the host must read the numbers only after the device is done"
