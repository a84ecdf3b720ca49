"""Training on a CPU: what a step gives back of its memory is there for the next."""

from __future__ import annotations

import subprocess
import sys

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
