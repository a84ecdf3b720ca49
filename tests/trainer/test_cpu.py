"""Memory: steps on a CPU reuse freed memory, and errors name the exhausted memory and the setting to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from tests.trainer.language import MODEL
from tests.trainer.processes import run, run_python
from tests.trainer.recipes import Recipe
from trainer.config import parse
from trainer.exit_codes import BAD_CONFIGURATION, ConfigurationError, PeerGoneError, TrainerError
from trainer.runtime import Runtime, start_runtime
from trainer.runtime.base import Decision

COUNT_PAGE_FAULTS = """
import resource
import torch
from trainer.runtime.base import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    for _ in range(2):
        activations = [torch.ones(4 * 2**20) for _ in range(8)]
        del activations

for prepare in (lambda: None, keep_freed_memory):
    prepare()
    step()
    before = faults()
    step()
    print(faults() - before)
"""
"""Program that prints the page faults of a step, first without keep_freed_memory and then with it."""


def test_keep_freed_memory_prevents_most_page_faults() -> None:
    result = run_python("-c", COUNT_PAGE_FAULTS)
    default_faults, remaining_faults = map(int, result.stdout.split())
    # A step creates 2 x 8 tensors of 16 MiB, and a page has 4096 bytes. The heap's layout is random, so the C library
    # may return only one of a step's tensors to the kernel.
    pages = 2 * 8 * 16 * 2**20 // 4096
    assert default_faults > pages / 20, "this C library keeps memory by itself: remove keep_freed_memory"
    assert remaining_faults < pages / 100


def raising(error: Exception) -> Callable[[], None]:
    """Return a function that raises this error."""

    def raise_error() -> None:
        raise error

    return raise_error


NCCL_ERROR = "NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version 2.28.9\nLast error:\n"
FLAG_VALUES = r"^flags.batch_size = 64, flags.accumulate = 1: "
HOST_LIMIT = FLAG_VALUES + r"the host ran out of memory \({}.*\); .* raise resources.memory, lower flags.batch_size"
GPU_LIMIT = (
    FLAG_VALUES + r"the accelerator ran out of memory \({}.*\); .* lower flags.batch_size, raise flags.accumulate"
)


@pytest.mark.parametrize(
    ("allocate", "message"),
    [
        (lambda: torch.empty(2**60), HOST_LIMIT.format(".*can't allocate memory: you tried to allocate")),
        (raising(MemoryError()), HOST_LIMIT.format("MemoryError")),
        (
            raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore")),
            GPU_LIMIT.format("CUDA out of memory. Tried to allocate 2.00 GiB."),
        ),
        (
            raising(RuntimeError("CUDA error: out of memory\nCompile with")),
            GPU_LIMIT.format("CUDA error: out of memory"),
        ),
        (
            raising(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
            GPU_LIMIT.format("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
        ),
        (
            raising(torch.distributed.DistBackendError(f"{NCCL_ERROR}Cuda failure 2 'out of memory'")),
            GPU_LIMIT.format("Cuda failure 2 'out of memory'"),
        ),
        (
            raising(
                torch.distributed.DistBackendError(
                    f"{NCCL_ERROR}Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888), "
                    "error: No space left on device (28)"
                )
            ),
            r"^shared_memory: /dev/shm of this host is full \(Error while .*\); .* raise shared_memory",
        ),
    ],
    ids=["host", "Python", "GPU", "pinned", "cuBLAS", "NCCL", "shared"],
)
def test_translate_errors_before_first_step_names_the_memory_limit(
    allocate: Callable[[], object], message: str, runtime: Runtime
) -> None:
    with pytest.raises(ConfigurationError, match=message), runtime.translate_errors():
        allocate()


def test_translate_errors_of_a_failed_nccl_call_raises_peer_gone(runtime: Runtime) -> None:
    with pytest.raises(PeerGoneError), runtime.translate_errors():
        raising(torch.distributed.DistBackendError(f"{NCCL_ERROR}Cuda failure 719 'unspecified launch failure'"))()


def test_translate_errors_after_first_step_allows_a_restart() -> None:
    runtime = start_runtime(parse(["digits", "--device=cpu"]))
    runtime.all_reduce_decision(Decision.CONTINUE)
    with pytest.raises(TrainerError, match=HOST_LIMIT.format("")) as raised, runtime.translate_errors():
        torch.empty(2**60)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("imagenet", ("--arch=resnet18", "--steps-per-epoch=1", "--image-size=1000")),
        # A batch is at most the texts of an epoch, which fit into memory. Use a model that does not fit.
        ("language", (*MODEL, "--hidden=1000000000", "--width=1000000")),
    ],
    ids=["imagenet", "language"],
)
def test_batch_beyond_memory_ends_run_without_traceback(
    name: str, flags: Sequence[str], both_recipes: dict[str, Recipe]
) -> None:
    result = run(
        "--batch-size=100000000", *flags, recipe=name, data=both_recipes["language"].data, code=BAD_CONFIGURATION
    )
    assert "error: flags.batch_size = 100000000, flags.accumulate = 1: the host ran out of memory (" in result.output
    assert "Traceback" not in result.output
