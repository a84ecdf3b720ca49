"""Runtime: interface of the training loop to a device and to the other ranks. Implementations for CPU and CUDA."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed exports them without types
from torch.nn.parallel import DistributedDataParallel

from trainer.config import TrainConfig
from trainer.distributed import init_process_group, launcher_number, local_part
from trainer.exit_codes import ConfigurationError, HangError, PeerGoneError, TrainerError

if TYPE_CHECKING:
    from trainer.data.datasets import Batch, Data
    from trainer.language.sizes import Parallelism

SETUP_SECONDS = 300.0
"""Minimum time-out in seconds until the second line of the log. By then, every rank has done its slow first step."""
TIMEOUT_SLACK_SECONDS = 20.0
"""Seconds by which torch's time-out is longer than the watchdog's, so that the watchdog reports a hang first."""
PREEMPTED_KEY = "preempted"
"""Key that a preempted rank sets in the store during an evaluation, when the ranks exchange no decisions."""
Shared = TypeVar("Shared")
HOST_MEMORY_TEXT = re.compile(r"DefaultCPUAllocator: can't allocate memory|std::bad_alloc")
"""Messages of errors when the host runs out of memory. torch has no exception type for them."""
GPU_MEMORY_TEXT = re.compile(
    r"CUDA error: out of memory|Cuda failure (\d+ )?'out of memory'|CU[A-Z]+_(STATUS_)?ALLOC_FAILED"
)
"""Messages of errors when CUDA's libraries or NCCL cannot allocate memory. Their type is not torch.OutOfMemoryError:
https://github.com/pytorch/pytorch/issues/128601."""
SHARED_MEMORY_TEXT = re.compile(r"(failed to extend|Error while creating shared memory segment) /dev/shm/nccl-")
"""Messages of NCCL's errors if /dev/shm is full:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory."""
TIMEOUT_TEXT = re.compile(r"[Tt]imed out|[Tt]imeout")
LOST_PEER_TEXT = re.compile(r"[Cc]onnection")
"""Messages of time-outs and of lost connections. gloo and NCCL raise RuntimeError for both (torch 2.9 to 2.15)."""
CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags in CPU_INFO of x86 and Arm processors that can multiply in bfloat16."""
QUOTA_V2 = Path("/sys/fs/cgroup/cpu.max")
QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
PERIOD_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
MAX_MMAP_THRESHOLD = 32 * 2**20
"""Largest value in bytes that the C library accepts, https://man7.org/linux/man-pages/man3/mallopt.3.html."""


class Decision(IntEnum):
    """Decision about the next step. The highest decision of all ranks applies to all."""

    CONTINUE = 0
    PREEMPT = 1
    """Save and stop, because some rank was preempted."""
    DIVERGED = 2
    """Stop without saving, because some rank's loss or weights are not finite."""


class Runtime:
    """A rank: its device, its number and its communication with the other ranks."""

    device: torch.device
    backend: str
    """Backends of torch.distributed for the tensors of this device and of the CPU."""
    device_ids: list[int] | None = None
    """The device_ids argument of DistributedDataParallel."""
    metrics_lag_steps = 0
    """Number of further optimizer steps after which the log reads the metrics of a step."""
    tensor_size = 1
    """Number of ranks in each tensor group. All ranks of a group get the same samples."""
    is_lockstep = False
    """True if all ranks must run each forward pass together: for a sharded model, and on XLA."""

    def __init__(self, config: TrainConfig) -> None:
        self.world = self.num_devices = launcher_number("WORLD_SIZE", "1", least=1)
        self.rank = launcher_number("RANK", "0", below=self.world)
        self.local_world = launcher_number("LOCAL_WORLD_SIZE", "1", least=1)
        self.local_rank = launcher_number("LOCAL_RANK", "0")
        self.timeout = config.process_group_timeout
        self.setup_timeout = max(self.timeout, SETUP_SECONDS) + TIMEOUT_SLACK_SECONDS
        self.config = config
        self._has_stepped = False
        self._pending_decision: tuple[dist.Work, torch.Tensor] | None = None
        self._saving: dist.ProcessGroup | None = None
        self.store: Store | None = None
        """Store that a rank can read and write at any time, without a collective; None if there is only one rank."""
        self.heartbeat: Callable[[], None] = lambda: None
        """Function that records a heartbeat, for slow operations. The watchdog sets it."""
        # Let `ps` and `top` show the rank of each process.
        Path("/proc/self/comm").write_text(f"rank-{self.rank}", encoding="ascii")
        self.init_device(config)
        if self.world > 1:
            with self.translate_errors():
                store = init_process_group(self.backend, timedelta(seconds=self.setup_timeout))
                # Use a second connection: the watchdog must reach the store while the rank waits on the first one.
                self.store = PrefixStore("trainer", store.clone())

    @property
    def data_rank(self) -> int:
        """Index of this rank's share of the samples, from 0."""
        return self.rank // self.tensor_size

    @property
    def data_world(self) -> int:
        """Number of shares of the samples."""
        return self.world // self.tensor_size

    def init_device(self, config: TrainConfig) -> None:
        """Set up the device of this rank."""
        raise NotImplementedError

    def half_dtype(self) -> torch.dtype | None:
        """Return the 16-bit type that this device computes fast in, or None."""
        raise NotImplementedError

    @property
    def precision(self) -> torch.dtype:
        """The type of convolutions and matrix products."""
        return (self.half_dtype() if self.config.amp else None) or torch.float32

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context that computes in `precision`."""
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[object]:
        """Return a context in which a backward pass accumulates gradients and the ranks do not average them."""
        if set_sync := getattr(model, "set_requires_gradient_sync", None):
            set_sync(False)
            context = ExitStack()
            context.callback(set_sync, True)
            return context
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model wrapped so that all ranks average its gradients.

        If `is_lockstep`, return it unchanged: the sharded model or `sync_gradients` averages the gradients.
        """
        if self.world == 1 or self.is_lockstep:
            return model
        # With a static graph, DDP does not search for unused weights at every step. With `accumulate` the graph is not
        # static, because some passes skip the averaging.
        static = self.config.accumulate == 1
        # Broadcasting buffers at each step would make all ranks wait for rank 0. torch 2.15 renamed the parameter.
        synced: dict[str, Any] = {"forward_sync_buffers" if torch.__version__ >= "2.15" else "broadcast_buffers": False}
        return DistributedDataParallel(
            model, device_ids=self.device_ids, static_graph=static, gradient_as_bucket_view=True, **synced
        )

    @property
    def data_device(self) -> torch.device:
        """The device that holds new batches and the counts of an evaluation."""
        return self.device

    def feed(self, data: Data) -> Data:
        """Return the data set with its batches on the device."""
        return data

    def set_parallelism(self, sizes: Parallelism) -> None:
        """Set the sizes of the groups that shard a decoder. Raises ConfigurationError for unsupported sizes."""
        self.tensor_size, self.is_lockstep = sizes.tensor, sizes.is_sharded

    def training(self, step: int) -> AbstractContextManager[object]:
        """Return a context for one optimizer step."""
        del step
        return nullcontext()

    def evaluating(self) -> AbstractContextManager[object]:
        """Return a context without gradients."""
        # torch's inference mode cannot run float8, and training cannot use weights gathered in inference mode.
        return torch.no_grad()

    def flush(self) -> None:
        """Start the queued operations on the device."""

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in optimizer.param_groups:
            group["lr"] = rate

    def sync_gradients(self, model: nn.Module) -> None:
        """Average the gradients over all ranks, unless the wrapped model has already averaged them."""

    def to_host(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors in the form that a checkpoint stores."""
        return tensors

    def host_like(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the size and sharding of the weight in a checkpoint. Its values have no meaning."""
        return weight

    def restore(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy a saved tensor, or this rank's part of it, to a tensor on the device."""
        local_part(target).copy_(local_part(saved))

    def counts(self) -> dict[str, int]:
        """Return counters for the log by name. Only XLA has counters."""
        return {}

    def shardings(self, model: nn.Module, batch: Batch) -> dict[str, str]:
        """Return the sharding of each tensor by name. Only XLA with several devices reports shardings."""
        del model, batch
        return {}

    def all_reduce_decision(self, decision: Decision) -> Decision:
        """Submit this rank's decision and return the common decision of the previous call.

        The ranks exchange their decisions while they compute the next step, so that no step waits. With one rank,
        return that rank's decision. All ranks must call this equally often.
        """
        self._has_stepped = True
        if self.world == 1:
            return decision
        agreed = self.wait_decision()
        value = torch.tensor([decision], dtype=torch.int32)
        work = dist.all_reduce(value, dist.ReduceOp.MAX, async_op=True)
        assert work is not None, "this process belongs to the group"
        self._pending_decision = (work, value)
        return agreed

    def wait_decision(self) -> Decision:
        """Return the common decision of the last `all_reduce_decision`. Waits for all ranks."""
        if self._pending_decision is None:
            return Decision.CONTINUE
        work, value = self._pending_decision
        self._pending_decision = None
        work.wait()
        return Decision(int(value.item()))

    def all_reduce_decision_now(self, decision: Decision) -> Decision:
        """Submit this rank's decision and return the common decision. Waits for all ranks."""
        self.all_reduce_decision(max(decision, self.wait_decision()))
        return self.wait_decision() if self.world > 1 else decision

    def stop_requested(self, *, is_local: bool) -> bool:
        """Return True if a rank was preempted: this one (`is_local`) or another one.

        In lockstep, all ranks must call this equally often. Otherwise a rank may call it at any time.
        """
        if self.is_lockstep:
            return self.all_reduce_decision(Decision.PREEMPT if is_local else Decision.CONTINUE) == Decision.PREEMPT
        if self.store is None:
            return is_local
        if is_local:
            self.store.set(PREEMPTED_KEY, "1")
        return is_local or bool(self.store.check([PREEMPTED_KEY]))

    def sync_buffers(self, model: nn.Module) -> None:
        """Copy rank 0's buffers to all ranks, because batch statistics differ between ranks."""
        buffers = list(model.buffers())
        if self.world == 1 or not buffers:
            return
        firsts = self.broadcast([buffer.cpu() for buffer in buffers] if self.rank == 0 else [])
        if self.rank == 0:
            return
        with torch.no_grad():
            for buffer, first in zip(buffers, firsts, strict=True):
                # Change in place: on XLA a copied tensor is another input, and the next step would be another graph.
                buffer.zero_().add_(first.to(buffer.device))

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all ranks."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, value: Shared) -> Shared:
        """Return rank 0's value, which can be any picklable object, on every rank."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def gather(self, value: Shared) -> list[Shared]:
        """Return the values of all ranks by rank. A value can be any picklable object."""
        if self.world == 1:
            return [value]
        values: list[Shared] = [value] * self.world
        dist.all_gather_object(values, value)
        return values

    def loading_group(self) -> dist.ProcessGroup | None:
        """Return a new process group that loads a checkpoint, or None for one rank. All ranks must call this."""
        return self._new_group(self.setup_timeout)

    def saving_group(self) -> dist.ProcessGroup | None:
        """Return the process group that saves in the background, or None for one rank.

        If a rank hangs during a save, the time-out of this group ends the job. The watchdog does not notice this hang,
        because the other ranks record heartbeats while they wait for the save.

        All ranks must call this at the same step.
        """
        self._saving = self._saving or self._new_group(self.timeout + TIMEOUT_SLACK_SECONDS)
        return self._saving

    def _new_group(self, seconds: float) -> dist.ProcessGroup | None:
        if self.world == 1:
            return None
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=seconds))
        assert isinstance(group, dist.ProcessGroup), "this process belongs to the group"
        return group

    def wait_for(self, work: Future[Shared]) -> Shared:
        """Return the result of background work. Records heartbeats while this rank waits for the work."""
        while True:
            try:
                return work.result(timeout=1)
            except NotYetError:
                if work.done():
                    raise
                self.heartbeat()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.all_reduce(torch.zeros(1))

    def close(self) -> None:
        """Leave the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn torch's errors into TrainerErrors: a hanging or lost rank, too little memory, no compiler."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            text = str(error).splitlines()[0] if str(error) else ""
            if problem := memory_problem(error, self.config):
                # If the memory was enough for a step, it may be enough again after a restart from the checkpoint.
                raise (TrainerError if self._has_stepped else ConfigurationError)(problem) from error
            if self.config.compile and _from_compiler(error):
                raise ConfigurationError(
                    "compile = True: must be False if torch.compile cannot compile the model; leave "
                    f"--compile out, or install g++ and Python's headers; the compiler says: {text}"
                ) from error
            if isinstance(error, dist.DistStoreError) or TIMEOUT_TEXT.search(text):
                raise HangError(f"a rank did not answer in time: {text}") from error
            if isinstance(error, dist.DistError) or LOST_PEER_TEXT.search(text):
                raise PeerGoneError(f"another rank is gone: {text}") from error
            raise


def _from_compiler(error: Exception) -> bool:
    # Imported here because it is slow to load and only compiled models need it.
    from torch._dynamo.exc import BackendCompilerFailed

    return isinstance(error, BackendCompilerFailed)


def memory_problem(error: BaseException, config: TrainConfig) -> str | None:
    """Return the message for an error of too little memory, with the setting to change; None for any other error."""
    batch = f"flags.batch_size = {config.batch_size}, flags.accumulate = {config.accumulate}"
    first_line = next(iter(str(error).splitlines()), type(error).__name__)
    if line := _line(SHARED_MEMORY_TEXT, error):
        return (
            f"shared_memory: /dev/shm of this host is full ({line}); it must be large enough for NCCL's "
            "buffers of all ranks of the host; raise shared_memory, and resources.memory, which contains it"
        )
    if (line := _line(GPU_MEMORY_TEXT, error)) or isinstance(error, torch.OutOfMemoryError):
        place, limit = "accelerator", "the batch must fit its memory; lower flags.batch_size, raise flags.accumulate"
        remedy = "or use an accelerator with more memory: resources.memory does not change it"
    elif (line := _line(HOST_MEMORY_TEXT, error)) or isinstance(error, MemoryError):
        place, limit = "host", "all ranks of the host share resources.memory and must fit in it; raise resources.memory"
        remedy = "lower flags.batch_size, raise flags.accumulate, or lower processes_per_host"
    else:
        return None
    return f"{batch}: the {place} ran out of memory ({line or first_line}); {limit}, {remedy}"


def _line(pattern: re.Pattern[str], error: BaseException) -> str | None:
    """Return the first line of the message that matches the pattern, or None."""
    return next((line.strip() for line in str(error).splitlines() if pattern.search(line)), None)


class CpuRuntime(Runtime):
    """A rank on CPU cores."""

    backend = "gloo"

    def init_device(self, config: TrainConfig) -> None:
        """Use as many threads as this rank has cores, unless the user sets another number.

        With more threads than cores, threads would wait for each other at every operation.
        """
        self.device = torch.device("cpu")
        keep_freed_memory()
        torch.set_num_threads(config.threads or self._threads())

    def half_dtype(self) -> torch.dtype | None:
        """Return bfloat16 if the CPU has instructions for it. Without them, bfloat16 is slower than 32 bits."""
        flags = CPU_INFO.read_text(encoding="ascii", errors="replace").split()
        return torch.bfloat16 if BFLOAT16_FLAGS & set(flags) else None

    def _threads(self) -> int:
        set_by_user = os.environ.get("OMP_NUM_THREADS", "")
        if set_by_user.isdigit() and int(set_by_user) > 0:
            return int(set_by_user)
        return max(1, int(cgroup_cpus() / self.local_world))


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the tensors of the next step, if the C library is glibc.

    By default glibc returns large blocks to the kernel, which clears and maps every page again at each step. That took
    an eighth of the time of ResNet-50 on two cores.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune:
        tune(M_TRIM_THRESHOLD, -1)
        tune(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)


def cgroup_cpus() -> float:
    """Return the number of CPUs that this process may use: its cgroup's quota or its CPU affinity, the lower one."""
    affinity = float(len(os.sched_getaffinity(0)))
    try:
        if QUOTA_V2.exists():
            quota, period = QUOTA_V2.read_text(encoding="ascii").split()
        else:
            quota, period = (path.read_text(encoding="ascii").strip() for path in (QUOTA_V1, PERIOD_V1))
    except FileNotFoundError:
        return affinity
    if quota in ("max", "-1"):
        return affinity
    return min(affinity, int(quota) / int(period))


class CudaRuntime(Runtime):
    """A rank on a GPU."""

    backend = "cpu:gloo,cuda:nccl"

    def half_dtype(self) -> torch.dtype | None:
        """Return bfloat16 for Ampere and later GPUs, else float16, for which the loop scales losses."""
        return torch.bfloat16 if torch.cuda.get_device_capability(self.device) >= (8, 0) else torch.float16

    def init_device(self, config: TrainConfig) -> None:
        """Use the GPU with the rank's number on this host. Raises ConfigurationError if the host has too few GPUs."""
        found = torch.cuda.device_count()
        if self.local_rank >= found:
            raise ConfigurationError(
                f"processes_per_host = {self.local_world}: must be at most {found}, the number of GPUs of this host; "
                "lower it"
            )
        if config.threads:
            torch.set_num_threads(config.threads)
        self.device = torch.device("cuda", self.local_rank)
        self.device_ids = [self.local_rank]
        torch.cuda.set_device(self.device)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
