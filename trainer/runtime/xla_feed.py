"""Batches on an XLA device, sent in advance by a thread. All have one shape, because another shape is another graph."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trainer.data.datasets import NO_LABEL, PREFETCH_STEPS, Batch, Data, GeneratedImages
from trainer.data.sampler import EpochSampler, Share

if TYPE_CHECKING:
    from trainer.runtime.xla import XlaRuntime

PreparedBatch = tuple[tuple[int, int], Batch]
"""A step's position (epoch, samples before it) and its batch."""


class PrefetchedBatches(Data):
    """A data set whose batches are on the device."""

    def __init__(self, data: Data, runtime: XlaRuntime, *, batch_size: int, accumulate: int) -> None:
        self.classes, self.sample_shape = data.classes, data.sample_shape
        self.num_samples, self.num_tests = data.num_samples, data.num_tests
        self._data, self._runtime = data, runtime
        # Generated images always have the same full batch, which is sent once.
        self._is_constant = isinstance(data, GeneratedImages)
        self._size = runtime.round_up_batch(-(-batch_size // accumulate)) * accumulate
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._prefetched: deque[Future[PreparedBatch | None]] = deque()
        self._sampler: EpochSampler | None = None
        self._kept: Batch | None = None

    @property
    def broken(self) -> Sequence[str]:
        """Known unreadable samples, each with the reason."""
        return self._data.broken

    def follow(self, sampler: EpochSampler) -> None:
        """Prepare the batches of the sampler's next steps in advance."""
        self._sampler = copy.copy(sampler)
        self._data.follow(self._sampler)

    def batch(self, share: Share, *, world: int) -> Batch:
        """Return this rank's samples of one training step."""
        place = (share.epoch, share.position)
        prepared = self._prefetched.popleft().result() if self._prefetched else None
        if prepared is None or prepared[0] != place:
            # A new epoch has started, or training was restored from a checkpoint.
            while self._prefetched:
                self._prefetched.popleft().result()
            assert self._sampler, "the sampler was not given"
            self._sampler.epoch, self._sampler.position = place
            prepared = self._thread.submit(self._next, world).result()
            assert prepared, "the epoch has this step"
        while len(self._prefetched) < PREFETCH_STEPS:
            self._prefetched.append(self._thread.submit(self._next, world))
        return prepared[1]

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's part of the test set. Every rank has equally many batches, if needed with padding."""
        batches = self._data.test_batches(rank=rank, world=world)
        size = 0
        while True:
            images, labels = next(batches, (torch.empty(0, *self.sample_shape), torch.empty(0).long()))
            most = max(self._runtime.gather(len(labels)))
            if not most:
                return
            size = size or self._runtime.round_up_batch(most)
            yield self._send(images, labels, size)

    def _next(self, world: int) -> PreparedBatch | None:
        """Return the next step's batch, or None at the end of the epoch. Runs in the thread."""
        assert self._sampler, "the sampler was not given"
        if not self._sampler.steps_left:
            return None
        share = self._sampler.next()
        place = (share.epoch, share.position)
        batch = self._data.batch(share, world=world)
        scale = self._runtime.scale(float(batch.scale))
        is_kept = self._is_constant and len(batch.labels) == self._size
        if is_kept and self._kept:
            return place, replace(self._kept, scale=scale)
        inputs, labels = self._send(batch.inputs, batch.labels, self._size)
        sent = Batch(inputs=inputs, labels=labels, scale=scale)
        self._kept = sent if is_kept else self._kept
        return place, sent

    def _send(self, images: torch.Tensor, labels: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        padded_labels = _padded(labels, size)
        padded_labels[len(labels) :] = NO_LABEL
        return self._runtime.to_device(_padded(images, size), padded_labels)


def _padded(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Repeat the tensor's own samples up to `size`, so that batch statistics come from real images."""
    if not len(tensor):
        return tensor.new_zeros(size, *tensor.shape[1:])
    return tensor if len(tensor) >= size else tensor[torch.arange(size) % len(tensor)]
