"""Which samples each rank takes at each step: every sample once an epoch, for any number of ranks and any restart."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Share:
    """One rank's part of one step's samples."""

    indices: torch.Tensor
    """The samples of this rank."""
    offset: int
    """How many of the step's samples the ranks before this one take."""
    total: int
    """The step's samples, all ranks together."""
    epoch: int
    """The epoch that the step belongs to, counted from 0."""
    position: int
    """How many samples of the epoch were taken before this step."""


class EpochSampler:
    """Hands out the samples of an epoch in an order that depends on the seed and the epoch only.

    Its place is a count of samples, all ranks together, and not of steps: another number of ranks goes on from it and
    neither repeats nor misses a sample. The last steps of an epoch are evened out; a rank gets none only where an epoch
    has fewer samples left than there are ranks.
    """

    def __init__(self, num_samples: int, *, rank: int, world: int, batch_size: int, seed: int) -> None:
        self.num_samples = num_samples
        self.rank = rank
        self.world = world
        self.global_batch = batch_size * world
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._order: tuple[int, torch.Tensor] | None = None
        self._begun = (0, seed)
        """The epoch that a checkpoint was in, and its seed."""

    @property
    def progress(self) -> float:
        """Epochs taken so far, with their fraction."""
        return self.epoch + self.position / self.num_samples

    @property
    def steps_left(self) -> int:
        """Steps to the end of the epoch."""
        return -(-(self.num_samples - self.position) // self.global_batch)

    @property
    def steps_of_epoch(self) -> int:
        """Steps of an epoch from its beginning, with as many ranks as there are."""
        return -(-self.num_samples // self.global_batch)

    def steps_to(self, epochs: int) -> int:
        """Steps from here to the end of so many epochs; 0 where they are behind."""
        return max(0, self.steps_left + (epochs - self.epoch - 1) * self.steps_of_epoch)

    def next(self) -> Share:
        """Take the next step's share and move on; there must be steps left."""
        position = self.position
        total = -(-(self.num_samples - position) // self.steps_left)
        start, end = (total * rank // self.world for rank in (self.rank, self.rank + 1))
        self.position += total
        indices = self._epoch_order()[position + start : position + end]
        return Share(indices=indices, offset=start, total=total, epoch=self.epoch, position=position)

    def next_epoch(self) -> None:
        """Start the next epoch."""
        self.epoch += 1
        self.position = 0

    def place(self) -> dict[str, int]:
        """Where the sampler stands, for a checkpoint."""
        seed = self._order_seed()
        return {"epoch": self.epoch, "position": self.position, "num_samples": self.num_samples, "seed": seed}

    def go_to(self, place: dict[str, int]) -> None:
        """Go on from a checkpoint's place; in a training set of another size, from the same share of it.

        An epoch that was begun with another seed is ended with that: its samples are those that are left.
        """
        self._begun = (place["epoch"], place.get("seed", self.seed))
        self.epoch = place["epoch"]
        self.position = place["position"] * self.num_samples // place["num_samples"]

    def _order_seed(self) -> int:
        return self._begun[1] if self._begun[0] == self.epoch else self.seed

    def _epoch_order(self) -> torch.Tensor:
        if self._order is None or self._order[0] != self.epoch:
            generator = torch.Generator().manual_seed(self._order_seed() * 1_000_003 + self.epoch)
            self._order = (self.epoch, torch.randperm(self.num_samples, generator=generator))
        return self._order[1]
