"""Script of the example `digits-ray`: train digits with Ray Train.

The job's head runs this script, and the job's hosts run the ranks. Rank 0 saves a checkpoint in the job's bucket after
each epoch. If a rank or a host is lost, Ray Train restarts all ranks from the last checkpoint. `--max-failures` limits
these restarts. A restarted job also starts from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from ray import train
from ray.train import torch as ray_torch
from torch import nn

FOLDER = Path("/opt/trainyard/digits")
STATE = "state.pt"
"""File with the state in a checkpoint's folder."""
BATCH = 64
TEST_PART = 5
"""Divisor for the test set: one in five images belongs to it."""


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images (count, 1, 28, 28) in 0..1 and labels (count,), in a fixed random order."""
    pixels = np.frombuffer((FOLDER / "digits-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    labels = np.frombuffer((FOLDER / "digits-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)
    images = pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255
    order = np.random.default_rng(0).permutation(len(images))
    return torch.from_numpy(images[order]), torch.from_numpy(labels[order].astype(np.int64))


def network() -> nn.Module:
    """Return a network with two convolutions and two dense layers, and the same initial weights on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def resume(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float]:
    """Load the last checkpoint, if there is one. Return the number of finished epochs and the test accuracy."""
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0, 0.0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder, STATE), map_location=ray_torch.get_device(), weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"]), float(state["accuracy"])


def save(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, accuracy: float) -> None:
    """Save a checkpoint. Every rank calls this, and rank 0 writes."""
    with TemporaryDirectory() as folder:
        checkpoint = None
        if train.get_context().get_world_rank() == 0:
            progress = {"epoch": epoch, "accuracy": accuracy}
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **progress}, Path(folder, STATE)
            )
            checkpoint = train.Checkpoint.from_directory(folder)
        train.report({"epoch": epoch, "accuracy": accuracy}, checkpoint=checkpoint)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: tuple[torch.Tensor, torch.Tensor], epoch: int, steps: int
) -> float:
    """Train `steps` batches in an order that depends on the epoch. Return the mean loss."""
    images, labels = data
    order = torch.from_numpy(np.random.default_rng(epoch).permutation(len(images)))
    total = 0.0
    for batch in order[: steps * BATCH].split(BATCH):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    return total / steps


def train_rank(config: dict[str, Any]) -> None:
    """Train on one rank. Print a `train` line and a `test` line per epoch."""
    rank, size = train.get_context().get_world_rank(), train.get_context().get_world_size()
    device = ray_torch.get_device()
    images, labels = (each.to(device) for each in load())
    num_test = len(images) // TEST_PART
    # All ranks take equally many steps. Otherwise a rank with one more batch would wait for the others forever.
    steps = (len(images) - num_test) // size // BATCH
    share = images[num_test + rank :: size], labels[num_test + rank :: size]
    model = ray_torch.prepare_model(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"], momentum=0.9)
    epochs, accuracy = resume(model, optimizer)
    first = epochs + 1
    name = "resume" if first > 1 else "start"
    print(f"{name} epoch={first} device={device} node={os.environ['TRAINYARD_NODE']} rank={rank}/{size}", flush=True)
    for epoch in range(first, config["epochs"] + 1):
        started = time.monotonic()
        loss = train_epoch(model, optimizer, share, epoch, steps)
        rate = steps * BATCH / (time.monotonic() - started)
        with torch.no_grad():
            accuracy = float((model(images[:num_test]).argmax(1) == labels[:num_test]).float().mean() * 100)
        save(model, optimizer, epoch, accuracy)
        print(
            f"train epoch={epoch} step={steps}/{steps} loss={loss:.4f} rate={rate:.1f} "
            f"global_rate={rate * size:.1f} global_step={epoch * steps} rank={rank}/{size}",
            flush=True,
        )
        print(f"test epoch={epoch} global_step={epoch * steps} accuracy={accuracy:.2f} rank={rank}/{size}", flush=True)
    print(f"done test_accuracy={accuracy:.2f} rank={rank}/{size}", flush=True)


def main() -> None:
    """Start a rank for each process of the job's hosts and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--max-failures", type=int, default=3)
    parser.add_argument("--gpu", action="store_true")
    options = parser.parse_args()
    ranks = int(os.environ["TRAINYARD_HOSTS"]) * int(os.environ["TRAINYARD_PROCESSES_PER_HOST"])
    ray_torch.TorchTrainer(
        train_rank,
        train_loop_config={"epochs": options.epochs, "learning_rate": options.learning_rate},
        scaling_config=train.ScalingConfig(num_workers=ranks, use_gpu=options.gpu),
        run_config=train.RunConfig(
            name=os.environ["TRAINYARD_JOB"],
            storage_path=os.environ["TRAINYARD_BUCKET"],
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
            failure_config=train.FailureConfig(max_failures=options.max_failures),
        ),
    ).fit()


if __name__ == "__main__":
    main()
