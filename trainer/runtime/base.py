"""What the loop asks of a device and of the other ranks, over torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed's own; exported there without types
from torch.nn.parallel import DistributedDataParallel

from trainer.bucket_layout import profiles_of
from trainer.config import TrainConfig
from trainer.data.batch import Batch, Data
from trainer.exit_codes import ConfigurationError, HangError, PeerGoneError, TrainerError
from trainer.process_group import from_launcher, meet
from trainer.runtime.out_of_memory import memory_problem
from trainer.runtime.profile import StepProfile
from trainer.storage import Folder

SLACK = 20.0
"""Seconds by which torch's own time-out is longer than ours: the watch must have said what hangs before it."""
LEAVING = "leaving"
"""What a rank writes into the store that was told to leave while the ranks do not meet at every step."""
Shared = TypeVar("Shared")


class Verdict(IntEnum):
    """Whether to go on; of the ranks' verdicts the highest counts for all."""

    GO_ON = 0
    LEAVE = 1
    """Save and leave: some rank was told to."""
    DIVERGED = 2
    """Leave without saving: some rank's loss or weights are no numbers."""


class Runtime:
    """One rank: its device, its number, and what it does together with the other ranks."""

    device: torch.device
    backend: str
    """Backends of torch.distributed for this device's tensors and the CPU's."""
    device_ids: list[int] | None = None
    """What DistributedDataParallel is told of devices."""
    metrics_lag = 0
    """Optimiser steps after which the numbers of a step are read."""

    def __init__(self, config: TrainConfig) -> None:
        self.world = from_launcher("WORLD_SIZE", "1", least=1)
        self.rank = from_launcher("RANK", "0", below=self.world)
        self.local_world = from_launcher("LOCAL_WORLD_SIZE", "1", least=1)
        self.local_rank = from_launcher("LOCAL_RANK", "0")
        self.timeout = config.process_group_timeout
        self._amp = config.amp
        self._batch_size, self._accumulate, self._compile = config.batch_size, config.accumulate, config.compile
        self._has_stepped = False
        self._vote: tuple[dist.Work, torch.Tensor] | None = None
        self._background: dist.ProcessGroup | None = None
        self.store: Store | None = None
        """What the ranks can read and write at any time, without meeting; None where there is one rank."""
        self.alive: Callable[[], None] = lambda: None
        """Called while this rank waits for something that may rightly take long."""
        # So that `ps` and `top` say which process is which rank.
        Path("/proc/self/comm").write_text(f"rank-{self.rank}", encoding="ascii")
        self.take_device(config)
        if self.world > 1:
            with self.watching():
                self._meet()

    def _meet(self) -> None:
        """Wait for the other ranks."""
        store = meet(self.backend, timedelta(seconds=self.timeout + SLACK))
        # A connection of its own: a rank that waits in the other one must not keep the watch from speaking.
        self.store = PrefixStore("trainer", store.clone())

    def take_device(self, config: TrainConfig) -> None:
        """Set the device up for this rank."""
        raise NotImplementedError

    def half(self) -> torch.dtype | None:
        """The type of 16 bits that this device computes fast in; None where it has none."""
        raise NotImplementedError

    @property
    def precision(self) -> torch.dtype:
        """What convolutions and matrix products are computed in."""
        return (self.half() if self._amp else None) or torch.float32

    def autocast(self) -> AbstractContextManager[object]:
        """The precision to compute in."""
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def alone(self, model: nn.Module) -> AbstractContextManager[object]:
        """In here a backward pass of a wrapped model adds up gradients and does not exchange them."""
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over all ranks."""
        if self.world == 1:
            return model
        # The graph is the same at every step, so that DDP need not search for unused weights; but where gradients are
        # not exchanged at every pass it is not.
        static = self._accumulate == 1
        # Batch statistics are not sent at each step, at which all would wait for rank 0: `level` does where they count.
        return DistributedDataParallel(
            model,
            device_ids=self.device_ids,
            static_graph=static,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )

    @property
    def feed_device(self) -> torch.device:
        """Where batches are made."""
        return self.device

    @property
    def scores_device(self) -> torch.device:
        """Where an evaluation counts."""
        return self.device

    def feed(self, data: Data) -> Data:
        """The data with its batches on the device."""
        return data

    def training(self, step: int) -> AbstractContextManager[object]:
        """In here one optimiser step is asked of the device."""
        del step
        return nullcontext()

    def evaluating(self) -> AbstractContextManager[object]:
        """In here the model computes no gradients."""
        return torch.inference_mode()

    def hand_over(self) -> None:
        """Let the device begin with what was asked of it so far."""

    def set_rate(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in optimizer.param_groups:
            group["lr"] = rate

    def exchange(self, model: nn.Module) -> None:
        """Average the gradients over all ranks, where the model that `wrap` gave has not done so."""

    def on_host(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors where a checkpoint can be written from."""
        return tensors

    def counts(self) -> dict[str, int]:
        """What this kind of device counts while it trains."""
        return {}

    def shardings(self, model: nn.Module, batch: Batch) -> dict[str, str]:
        """How each tensor is spread over several devices of this rank, where it has several."""
        del model, batch
        return {}

    def step_profile(self, config: TrainConfig, first: int, last: int) -> StepProfile:
        """What profiles the steps from `first` to `last` into the bucket."""
        return StepProfile(profiles_of(Folder(config.bucket), config.job).child(f"rank-{self.rank}"), first, last)

    def vote(self, verdict: Verdict) -> Verdict:
        """Give this rank's verdict and get what all ranks agreed on at the call before.

        The ranks agree while the next step is computed, so that no step waits for it. All must call it equally often.
        """
        self._has_stepped = True
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

    def told(self, *, mine: bool) -> bool:
        """Whether this rank, as `mine` says, or another one was told to leave; the ranks ask as often as each likes."""
        if self.store is None:
            return mine
        if mine:
            self.store.set(LEAVING, "1")
        return mine or bool(self.store.check([LEAVING]))

    def level(self, model: nn.Module) -> None:
        """Give all ranks rank 0's buffers, such as the statistics that each rank has of its own batches."""
        buffers = list(model.buffers())
        if self.world == 1 or not buffers:
            return
        firsts = self.share([buffer.cpu() for buffer in buffers] if self.rank == 0 else [])
        if self.rank == 0:
            return
        with torch.no_grad():
            for buffer, first in zip(buffers, firsts, strict=True):
                # Changed in place: to XLA a copy from the host would be another input, and the next step another graph.
                buffer.zero_().add_(first.to(buffer.device))

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over all ranks."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def share(self, value: Shared) -> Shared:
        """Rank 0's value, anything that can be pickled, on every rank."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def gather(self, value: Shared) -> list[Shared]:
        """Every rank's value, anything that can be pickled, by rank; on every rank."""
        if self.world == 1:
            return [value]
        values: list[Shared] = [value] * self.world
        dist.all_gather_object(values, value)
        return values

    def background_group(self) -> dist.ProcessGroup | None:
        """What the ranks talk through beside the training; all must call it at the same step. None for one rank."""
        if self.world > 1 and self._background is None:
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self.timeout + SLACK))
            assert isinstance(group, dist.ProcessGroup), "this process belongs to the group"
            self._background = group
        return self._background

    def wait_for(self, work: Future[Shared]) -> Shared:
        """The result of work in the background, however long it takes."""
        while True:
            try:
                return work.result(timeout=1)
            except NotYetError:
                if work.done():
                    raise
                self.alive()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.world > 1:
            dist.all_reduce(torch.zeros(1))

    def close(self) -> None:
        """Leave the other ranks in good order."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Turn what torch raises into our own errors: a rank hangs or is gone, memory is short, nothing compiles."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            text = str(error).splitlines()[0] if str(error) else ""
            if problem := memory_problem(error, batch_size=self._batch_size, accumulate=self._accumulate):
                # Memory that sufficed for a step may suffice again after a restart from the checkpoint.
                raise (TrainerError if self._has_stepped else ConfigurationError)(problem) from error
            if self._compile and _from_compiler(error):
                raise ConfigurationError(
                    "compile is True; allowed is False where torch.compile makes no kernels of this model: leave "
                    f"--compile out, or see that g++ and Python's headers are there; it says: {text}"
                ) from error
            if isinstance(error, dist.DistStoreError) or "imed out" in text or "imeout" in text:
                raise HangError(f"a rank did not answer within {self.timeout:g} s: {text}") from error
            if isinstance(error, dist.DistError) or "onnection" in text:
                raise PeerGoneError(f"another rank is gone: {text}") from error
            raise


def _work(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this process belongs to the group"
    return work


def _from_compiler(error: Exception) -> bool:
    # Loaded where something is compiled, and slow to load elsewhere.
    from torch._dynamo.exc import BackendCompilerFailed

    return isinstance(error, BackendCompilerFailed)
