"""The trainer with a fault in one rank, or with other constants.

`python -m tests.trainer.faulty FAULT RANK [MODULE.CONSTANT=NUMBER...] RECIPE --flags`. FAULTS lists the faults.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from trainer.__main__ import exit_process, main
from trainer.checkpoints.state import RunCheckpoints
from trainer.data.datasets import Digits, GeneratedImages
from trainer.data.texts import Texts
from trainer.loop import Training
from trainer.runtime import Runtime

FIRST_STEPS = 20
"""Number of steps before the fault."""
KILLS_IN_A_SAVE = (("check_tensor", 0, 1), ("check_tensor", 1, 4), ("verify_lease", 0, 2), ("manifest_written", 0, 1))
"""For each start: the hook of a save, the rank that dies in it, and the number of the call at which it dies.

`check_tensor` runs before each tensor of a rank, `verify_lease` at the start and before the manifest, and
`manifest_written` after the manifest.
"""


def after_first_steps(fault: Callable[[], object]) -> None:
    """Run the fault when the rank fetches the data of a step after the first ones."""

    def replaced(batch: Callable[..., Any]) -> Callable[..., Any]:
        steps = 0

        def faulty(*words: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > FIRST_STEPS:
                fault()
            return batch(*words, **more)

        return faulty

    for data in (Digits, Texts):
        data.batch = replaced(data.batch)  # type: ignore[method-assign]  # the fault


def asleep() -> None:
    """Wait for data that never comes."""
    after_first_steps(lambda: time.sleep(3600))


def late() -> None:
    """Start the first step 8 seconds late."""
    step = Training.step

    def delayed(self: Training, *words: Any, **more: Any) -> None:
        Training.step = step  # type: ignore[method-assign]  # once
        time.sleep(8)
        step(self, *words, **more)

    Training.step = delayed  # type: ignore[method-assign]  # the fault


def out_of_memory() -> None:
    """Allocate more memory than any host has."""
    after_first_steps(lambda: torch.empty(2**60))


def defective() -> None:
    """Raise an error that the trainer does not expect."""
    after_first_steps(lambda: 1 / 0)


def killed_in_save() -> None:
    """Die by SIGKILL in the second save of this start, if KILLS_IN_A_SAVE has an entry for this start and rank."""
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for name, rank, call in KILLS_IN_A_SAVE[start : start + 1]:
        if rank == int(os.environ["RANK"]):
            die_in(name, call)


def die_in(name: str, call: int) -> None:
    """Die by SIGKILL at this call of a hook in the second save."""
    hook, calls = getattr(RunCheckpoints, name), dict[int, int]()

    def dying(self: RunCheckpoints, *words: Any) -> None:
        calls[self.saving_step] = calls.get(self.saving_step, 0) + 1
        if len(calls) > 1 and calls[self.saving_step] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        hook(self, *words)

    setattr(RunCheckpoints, name, dying)


def slow() -> None:
    """Make each step of this rank take three times as long."""
    step = Training.step
    took = 0.02

    def slowed(batch: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(*words: Any, **more: Any) -> Any:
            # Not a sleep: on a busy machine this slows down as much as the step does.
            until = time.thread_time() + 2 * took
            while time.thread_time() < until:
                pass
            return batch(*words, **more)

        return fetch

    def timed(self: Training, *words: Any, **more: Any) -> None:
        nonlocal took
        started = time.thread_time()
        step(self, *words, **more)
        took = time.thread_time() - started

    for data in (Digits, GeneratedImages, Texts):
        data.batch = slowed(data.batch)  # type: ignore[method-assign]  # the fault
    Training.step = timed  # type: ignore[method-assign]  # the fault


def endless() -> None:
    """Evaluate without end, and print a line after the first pass over the test set."""

    def repeated(batches: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
        def endlessly(*words: Any, **more: Any) -> Iterator[Any]:
            yield from batches(*words, **more)
            print("evaluating", flush=True)
            while True:
                yield from batches(*words, **more)

        return endlessly

    for data in (Digits, Texts):
        data.test_batches = repeated(data.test_batches)  # type: ignore[method-assign]  # the fault


def preempted() -> None:
    """Receive SIGTERM in the first step, after the exchange of gradients: other ranks may have finished the step."""
    sync = Runtime.sync_gradients

    def signalled(self: Runtime, model: nn.Module) -> None:
        sync(self, model)
        Runtime.sync_gradients = sync  # type: ignore[method-assign]  # once
        os.kill(os.getpid(), signal.SIGTERM)

    Runtime.sync_gradients = signalled  # type: ignore[method-assign]  # the fault


FAULTS: dict[str, Callable[[], object]] = {
    "sleep": asleep,
    "late": late,
    "memory": out_of_memory,
    "defect": defective,
    "slow": slow,
    "endless": endless,
    "preempted": preempted,
    "killed": killed_in_save,
    "none": lambda: None,
}
"""Faults by name."""


def set_constants() -> None:
    """Set the constants in the command line, and remove them from it."""
    while "=" in sys.argv[1]:
        name, _, value = sys.argv.pop(1).partition("=")
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, float(value))


if __name__ == "__main__":
    fault, rank = sys.argv[1:3]
    del sys.argv[1:3]
    set_constants()
    if rank in ("all", os.environ.get("RANK", "0")):
        FAULTS[fault]()
    exit_process(main())
