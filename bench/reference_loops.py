"""Training loops as the two best-known reference scripts have them, for the same model, batch and data as ours.

What they do at a step is written from their description, none of it copied: torchvision's classification reference
(https://github.com/pytorch/vision/tree/main/references/classification) and the ImageNet example of
https://github.com/pytorch/examples/tree/main/imagenet. Both read from a DataLoader; here that holds images made before,
so that loops are compared and not generators of random numbers.

`python -m bench.reference_loops` is a process of theirs, where nothing is set that torch does not set by itself: it
reads the name of a loop a line and answers with `RESULT seconds`.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from statistics import median

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from bench.measure import RESULT
from trainer.config import ImagenetConfig
from trainer.models import build_model

SAME = ImagenetConfig(
    arch="resnet18",
    image_size=128,
    num_classes=1000,
    batch_size=16,
    steps_per_epoch=3,
    epochs=1_000_000,
    channels_last=False,
    learning_rate=1e-9,
    bucket="",
)
"""What all loops train. At this learning rate weights stay as they are: arithmetic on others may take another time."""
PRINT_STEPS = 10
"""Steps from one printed line to the next, in both."""
WINDOW = 20
"""Values that torchvision's reference smooths over."""
Batches = DataLoader[tuple[torch.Tensor, ...]]


def loader(config: ImagenetConfig) -> Batches:
    """As many random images as an epoch of ours takes."""
    count = config.batch_size * config.steps_per_epoch
    generator = torch.Generator().manual_seed(config.seed)
    images = torch.randn(count, 3, config.image_size, config.image_size, generator=generator)
    labels = torch.randint(config.num_classes, (count,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=config.batch_size, shuffle=True)


def optimizer(config: ImagenetConfig, model: nn.Module) -> torch.optim.Optimizer:
    """SGD as both make it: with momentum, and the kernels that torch takes by itself."""
    return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=0.9, weight_decay=config.weight_decay)


def right_in_first(logits: torch.Tensor, labels: torch.Tensor, *most: int) -> Iterator[torch.Tensor]:
    """Percent of samples whose class is among the first k, for each k."""
    with torch.inference_mode():
        first = logits.topk(max(most), dim=1).indices.t()
        right = first == labels
        for count in most:
            yield right[:count].float().sum() * (100 / len(labels))


def torchvision_epoch(model: nn.Module, update: torch.optim.Optimizer, batches: Batches) -> None:
    """One epoch: loss and two accuracies are fetched at every step, smoothed over the last ones."""
    model.train()
    values: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
    ended = time.time()
    for number, (images, labels) in enumerate(batches):
        started = time.time()
        values["data"].append(started - ended)
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        update.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        update.step()
        first, fifth = right_in_first(logits, labels, 1, 5)
        values["loss"].append(loss.item())
        values["acc1"].append(first.item())
        values["acc5"].append(fifth.item())
        values["img/s"].append(len(images) / (time.time() - started))
        if number % PRINT_STEPS == 0:
            print(number, {name: f"{median(found):.4f}" for name, found in values.items()})
        ended = time.time()


def imagenet_epoch(model: nn.Module, update: torch.optim.Optimizer, batches: Batches) -> None:
    """One epoch: loss and two accuracies are fetched at every step, and averaged over the epoch."""
    model.train()
    sums: dict[str, float] = defaultdict(float)
    ended = time.time()
    for number, (images, labels) in enumerate(batches, start=1):
        sums["data"] += time.time() - ended
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        first, fifth = right_in_first(logits, labels, 1, 5)
        for name, value in (("loss", loss), ("acc1", first), ("acc5", fifth)):
            sums[name] += value.item() * len(images)
        update.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        update.step()
        sums["time"] += time.time() - ended
        ended = time.time()
        if number % PRINT_STEPS == 1:
            print(number, {name: f"{total / number:.4f}" for name, total in sums.items()})


def main() -> None:
    """Take an epoch whenever told to, until there are no more."""
    model = build_model(SAME, classes=SAME.num_classes, channels=3)
    update, batches = optimizer(SAME, model), loader(SAME)
    loops = {"torchvision": torchvision_epoch, "imagenet": imagenet_epoch}
    for line in sys.stdin:
        started = time.perf_counter()
        loops[line.strip()](model, update, batches)
        print(RESULT, time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
