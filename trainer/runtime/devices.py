"""CPU runtime with gloo between ranks, and CUDA runtime with one GPU per rank and NCCL between GPUs."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.runtime.base import Runtime

CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""CPU flags of x86 and Arm processors that can multiply in bfloat16."""
QUOTA_V2 = Path("/sys/fs/cgroup/cpu.max")
QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
PERIOD_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
MAX_MMAP_THRESHOLD = 32 * 2**20
"""Largest value in bytes that the C library accepts, https://man7.org/linux/man-pages/man3/mallopt.3.html."""


class CpuRuntime(Runtime):
    """A rank on CPU cores."""

    backend = "gloo"

    def init_device(self, config: TrainConfig) -> None:
        """Use as many threads as this rank has cores. More threads would wait for each other at every operation."""
        self.device = torch.device("cpu")
        keep_freed_memory()
        torch.set_num_threads(config.threads or self._threads())

    def half_dtype(self) -> torch.dtype | None:
        """Return bfloat16 if the CPU has instructions for it. Without them it is slower than 32 bits."""
        flags = CPU_INFO.read_text(encoding="ascii", errors="replace").split()
        return torch.bfloat16 if BFLOAT16_FLAGS & set(flags) else None

    def _threads(self) -> int:
        set_by_user = os.environ.get("OMP_NUM_THREADS", "")
        if set_by_user.isdigit() and int(set_by_user) > 0:
            return int(set_by_user)
        return max(1, int(cgroup_cpus() / self.local_world))


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the tensors of the next step.

    By default it returns large blocks to the kernel, which then clears and maps every page again at each step. That
    took an eighth of the time of ResNet-50 on two cores. Does nothing if the C library is not glibc.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune:
        tune(M_TRIM_THRESHOLD, -1)
        tune(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)


def cgroup_cpus() -> float:
    """Return the CPUs that this process may use: its cgroup's quota, or fewer if it is bound to fewer."""
    bound = float(len(os.sched_getaffinity(0)))
    try:
        if QUOTA_V2.exists():
            quota, period = QUOTA_V2.read_text(encoding="ascii").split()
        else:
            quota, period = (path.read_text(encoding="ascii").strip() for path in (QUOTA_V1, PERIOD_V1))
    except FileNotFoundError:
        return bound
    if quota in ("max", "-1"):
        return bound
    return min(bound, int(quota) / int(period))


class CudaRuntime(Runtime):
    """A rank on a GPU."""

    backend = "cpu:gloo,cuda:nccl"

    def half_dtype(self) -> torch.dtype | None:
        """Return bfloat16 from Ampere on, else float16, for which the loop scales losses."""
        return torch.bfloat16 if torch.cuda.get_device_capability(self.device) >= (8, 0) else torch.float16

    def init_device(self, config: TrainConfig) -> None:
        """Use the GPU with this rank's number on its host. Raises ConfigurationError if there are too few GPUs."""
        found = torch.cuda.device_count()
        if self.local_rank >= found:
            raise ConfigurationError(
                f"processes per host is {self.local_world}; allowed is at most {found}, this host's number of GPUs"
            )
        if config.threads:
            torch.set_num_threads(config.threads)
        self.device = torch.device("cuda", self.local_rank)
        self.device_ids = [self.local_rank]
        torch.cuda.set_device(self.device)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
