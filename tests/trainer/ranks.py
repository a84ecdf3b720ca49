"""A rank that reads images, without a device or a process group."""

from __future__ import annotations

from typing import TypeVar

import torch

from trainer.runtime import Runtime

Value = TypeVar("Value")


class ReaderRank(Runtime):
    """Rank of several that does not communicate with the others."""

    def __init__(self, *, rank: int = 0, world: int = 1, local_rank: int = 0) -> None:
        self.rank, self.world, self.local_rank = rank, world, local_rank
        self.device = torch.device("cpu")
        self.heartbeat = lambda: None

    def gather(self, value: Value) -> list[Value]:
        """Return the own value alone."""
        return [value]
