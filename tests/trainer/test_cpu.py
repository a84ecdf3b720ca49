"""Memory: what a step on a CPU gives back of it is there for the next, and what asks for more than there is is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainer.processes import run
from trainer.exit_codes import BAD_CONFIGURATION, ConfigurationError, TrainerError
from trainer.runtime import Runtime
from trainer.runtime.base import Verdict

STEPS = """
import resource
import torch
from trainer.runtime.cpu import keep_freed_memory

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


def test_the_kernel_clears_no_page_anew_for_a_step() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    by_default, kept = map(int, done.stdout.split())
    pages = 2 * 8 * 16 * 2**20 // 4096
    # Where the heap lies is chance: of the sixteen tensors of a step it may be just one that goes back to the kernel.
    assert by_default > pages / 20, "this C library keeps memory by itself: keep_freed_memory can go"
    assert kept < pages / 100


def fail(error: Exception) -> Callable[[], None]:
    """Raise this."""

    def do() -> None:
        raise error

    return do


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: torch.empty(2**60), "can't allocate memory: you tried to allocate"),
        (fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")), "Tried to allocate 2.00 GiB"),
        (fail(MemoryError()), "out of memory"),
    ],
    ids=["host", "device", "Python"],
)
def test_memory_that_does_not_suffice_is_a_flag_that_cannot_be_obeyed(
    ask: Callable[[], object], said: str, runtime: Runtime
) -> None:
    with (
        pytest.raises(ConfigurationError, match=f"^batch_size is 64, in 1 parts; .* lower --batch-size, .*{said}"),
        runtime.watching(),
    ):
        ask()


def test_memory_that_sufficed_for_a_step_may_suffice_again(runtime: Runtime) -> None:
    runtime.vote(Verdict.GO_ON)
    with pytest.raises(TrainerError, match=r"^batch_size is 64, in 1 parts; ") as raised, runtime.watching():
        torch.empty(2**60)
    assert raised.value.exit_code == 1


def test_a_batch_that_no_memory_holds_ends_a_run_with_a_sentence(tmp_path: Path) -> None:
    flags = ("--arch=resnet18", "--steps-per-epoch=1", "--batch-size=100000000", "--image-size=1000")
    ended = run(*flags, recipe="imagenet", data=tmp_path)
    assert ended.codes == [BAD_CONFIGURATION], ended.output
    assert "error: batch_size is 100000000, in 1 parts; allowed is what this rank's memory takes" in ended.output
    assert "Traceback" not in ended.output
