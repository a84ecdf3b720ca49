"""The order of samples: each sample once per epoch, for any number of ranks and with any restarts."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Share:
    """A rank's part of a step's samples."""

    indices: torch.Tensor
    """Indices of this rank's samples in the training set."""
    all_indices: torch.Tensor
    """Indices of all ranks' samples in the training set."""
    offset: int
    """Number of the step's samples in the shares of lower ranks."""
    total: int
    """Number of the step's samples in all shares."""
    epoch: int
    """The step's epoch, counted from 0."""
    position: int
    """Number of the epoch's samples before this step."""


class EpochSampler:
    """Order of an epoch's samples and their division among ranks. The order depends only on the seed and the epoch.

    The position counts samples over all ranks, not steps. Therefore another number of ranks can continue from it
    without repeating or skipping a sample. The sizes of an epoch's steps differ by at most one sample. A rank gets no
    samples in a step only if fewer samples than ranks are left, or if the batch size is 1.
    """

    def __init__(self, num_samples: int, *, rank: int, world: int, batch_size: int, seed: int) -> None:
        self.num_samples, self.seed = num_samples, seed
        self.rank, self.world, self.global_batch = rank, world, batch_size * world
        self.epoch = self.position = 0
        self._order: tuple[int, torch.Tensor] | None = None
        self._resumed = (0, seed)
        """Epoch and seed of the restored checkpoint."""

    @property
    def progress(self) -> float:
        """Number of finished epochs plus the finished fraction of the current one."""
        return self.epoch + self.position / self.num_samples

    @property
    def steps_left(self) -> int:
        """Number of steps left in the epoch."""
        return -(-(self.num_samples - self.position) // self.global_batch)

    @property
    def epoch_steps(self) -> int:
        """Number of steps in a whole epoch with the current number of ranks."""
        return -(-self.num_samples // self.global_batch)

    def steps_until(self, epochs: int) -> int:
        """Return the number of steps until this number of epochs is done, at least 0."""
        return max(0, self.steps_left + (epochs - self.epoch - 1) * self.epoch_steps)

    def next(self) -> Share:
        """Return this rank's share of the next step, and advance. The epoch must have steps left."""
        position = self.position
        total = -(-(self.num_samples - position) // self.steps_left)
        start, end = (total * rank // self.world for rank in (self.rank, self.rank + 1))
        self.position += total
        every = self._epoch_order()[position : position + total]
        own, epoch = every[start:end], self.epoch
        return Share(indices=own, all_indices=every, offset=start, total=total, epoch=epoch, position=position)

    def next_epoch(self) -> None:
        """Start the next epoch."""
        self.epoch += 1
        self.position = 0

    def state(self) -> dict[str, int]:
        """Return the position for a checkpoint."""
        seed = self._order_seed()
        return {"epoch": self.epoch, "position": self.position, "num_samples": self.num_samples, "seed": seed}

    def load_state(self, state: dict[str, int]) -> None:
        """Restore a position. If the training set has another size, continue at the same fraction of the epoch.

        The rest of that epoch keeps the seed of the checkpoint, because the order of its samples depends on the seed.
        """
        self._resumed = (state["epoch"], state.get("seed", self.seed))
        self.epoch = state["epoch"]
        self.position = state["position"] * self.num_samples // state["num_samples"]

    def _order_seed(self) -> int:
        return self._resumed[1] if self._resumed[0] == self.epoch else self.seed

    def _epoch_order(self) -> torch.Tensor:
        if self._order is None or self._order[0] != self.epoch:
            generator = torch.Generator().manual_seed(self._order_seed() * 1_000_003 + self.epoch)
            self._order = (self.epoch, torch.randperm(self.num_samples, generator=generator))
        return self._order[1]
