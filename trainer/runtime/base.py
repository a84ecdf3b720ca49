"""What the loop asks of a device and of the other ranks, over torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.config import TrainConfig
from trainer.exit_codes import HangError, PreemptedError


class Verdict(IntEnum):
    """Whether to go on; of the ranks' verdicts the highest counts for all."""

    GO_ON = 0
    LEAVE = 1
    """Save and leave: some rank was told to."""
    DIVERGED = 2
    """Leave without saving: some rank's loss is not a number."""


class Runtime:
    """One rank: its device, its number, and what it does together with the other ranks."""

    device: torch.device
    backend: str
    """Backends of torch.distributed for this device's tensors and the CPU's."""
    device_ids: list[int] | None = None
    """What DistributedDataParallel is told of devices."""

    def __init__(self, config: TrainConfig) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.local_world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.timeout = config.process_group_timeout
        self._amp = config.amp
        self._vote: tuple[dist.Work, torch.Tensor] | None = None
        self.take_device(config)
        if self.world > 1:
            with self.watching():
                dist.init_process_group(self.backend, timeout=timedelta(seconds=self.timeout))

    def take_device(self, config: TrainConfig) -> None:
        """Set the device up for this rank."""
        raise NotImplementedError

    def autocast(self) -> AbstractContextManager[object]:
        """The precision to compute in."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._amp)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over all ranks."""
        if self.world == 1:
            return model
        # The graph is the same at every step: DDP need not search for unused weights.
        return DistributedDataParallel(
            model, device_ids=self.device_ids, static_graph=True, gradient_as_bucket_view=True
        )

    def vote(self, verdict: Verdict) -> Verdict:
        """Give this rank's verdict and get what all ranks agreed on at the call before.

        The ranks agree while the next step is computed, so that no step waits for it. All must call it equally often.
        """
        if self.world == 1:
            return verdict
        agreed = self.settle()
        ballot = torch.tensor([verdict], dtype=torch.int32)
        self._vote = (_work(dist.all_reduce(ballot, dist.ReduceOp.MAX, async_op=True)), ballot)
        return agreed

    def settle(self) -> Verdict:
        """What all ranks agreed on at the last vote."""
        if self._vote is None:
            return Verdict.GO_ON
        work, ballot = self._vote
        self._vote = None
        work.wait()
        return Verdict(int(ballot.item()))

    def agree(self, verdict: Verdict) -> Verdict:
        """Give this rank's verdict and wait for what all ranks agree on."""
        self.vote(max(verdict, self.settle()))
        return self.settle() if self.world > 1 else verdict

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over all ranks."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: torch.Tensor) -> list[torch.Tensor]:
        """A CPU tensor of every rank, in order; all of one shape."""
        if self.world == 1:
            return [value]
        found = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(found, value)
        return found

    def broadcast(self, content: bytes | None) -> bytes | None:
        """Rank 0's bytes on every rank."""
        if self.world == 1:
            return content
        length = torch.tensor([-1 if content is None else len(content)])
        dist.broadcast(length, 0)
        if length.item() < 0:
            return None
        if content is not None:
            data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        else:
            data = torch.empty(int(length.item()), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return data.numpy().tobytes()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum(torch.zeros(1))

    def close(self) -> None:
        """Leave the other ranks in good order."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Turn what torch.distributed raises when another rank hangs or is gone into our own errors."""
        try:
            yield
        except RuntimeError as error:
            text = str(error).splitlines()[0] if str(error) else ""
            if isinstance(error, dist.DistStoreError) or "imed out" in text or "imeout" in text:
                raise HangError(f"a rank did not answer within {self.timeout:g} s: {text}") from error
            if isinstance(error, dist.DistError) or "onnection" in text:
                raise PreemptedError(f"another rank is gone: {text}") from error
            raise


def _work(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this process belongs to the group"
    return work
