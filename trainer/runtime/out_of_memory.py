"""Errors of torch and NCCL that mean too little memory, and the limit to raise for each."""

from __future__ import annotations

import re

import torch

HOST = re.compile(r"DefaultCPUAllocator: can't allocate memory|std::bad_alloc")
"""torch has no exception type for the host's memory."""
GPU = re.compile(r"CUDA error: out of memory|Cuda failure (\d+ )?'out of memory'|CU[A-Z]+_(STATUS_)?ALLOC_FAILED")
"""Memory that CUDA's libraries and NCCL allocate themselves, so that torch.OutOfMemoryError is not raised.

https://github.com/pytorch/pytorch/issues/128601
"""
SHARED = re.compile(r"(failed to extend|Error while creating shared memory segment) /dev/shm/nccl-")
"""https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory"""


def memory_problem(error: BaseException, *, batch_size: int, accumulate: int) -> str | None:
    """Return what ran out and which limit to raise, or None if the error does not mean too little memory."""
    batch = f"flags.batch_size = {batch_size}, flags.accumulate = {accumulate}"
    if line := _line(SHARED, error):
        return (
            f"shared_memory: /dev/shm of this host is full ({line}); allowed is what NCCL needs for all ranks "
            "of a host; raise shared_memory, and resources.memory, which contains it"
        )
    line = _line(GPU, error)
    if line or isinstance(error, torch.OutOfMemoryError):
        return (
            f"{batch}: the accelerator ran out of memory ({line or _first_line(error)}); allowed is a batch that fits "
            "its memory; lower flags.batch_size, raise flags.accumulate, or use an accelerator with more memory: "
            "resources.memory does not change it"
        )
    line = _line(HOST, error)
    if line or isinstance(error, MemoryError):
        return (
            f"{batch}: the host ran out of memory ({line or _first_line(error)}); allowed is what fits "
            "resources.memory, which all ranks of the host share; raise resources.memory, lower flags.batch_size, "
            "raise flags.accumulate, or lower processes_per_host"
        )
    return None


def _line(pattern: re.Pattern[str], error: BaseException) -> str | None:
    """Return the first line of the message that matches."""
    return next((line.strip() for line in str(error).splitlines() if pattern.search(line)), None)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
