"""Run the trainer with a fault in one or all ranks, or with other constants.

`python -m tests.trainer.faulty FAULT RANK [MODULE.CONSTANT=NUMBER...] RECIPE --flags`. FAULTS lists the faults. RANK is
a number or `all`.
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

from trainer import loop
from trainer.__main__ import exit_process, main
from trainer.checkpoints.state import RunCheckpoints
from trainer.config import RecipeConfig
from trainer.data.datasets import Digits, GeneratedImages
from trainer.data.texts import Texts
from trainer.loop import Training
from trainer.runtime import Runtime
from trainer.tasks import Task

FIRST_STEPS = 20
"""Number of steps before the fault."""
KILLS_IN_A_SAVE = (("check_tensor", 0, 1), ("check_tensor", 1, 4), ("verify_lease", 0, 2), ("manifest_written", 0, 1))
"""For each start: a hook of a save, the rank that the hook kills, and the number of the call that kills it.

A save calls `check_tensor` before it writes a tensor, `verify_lease` at its start and before the manifest, and
`manifest_written` after the manifest.
"""


def after_first_steps(fault: Callable[[], object]) -> None:
    """Run the fault when this rank fetches a batch after the first FIRST_STEPS batches."""

    def replaced(batch: Callable[..., Any]) -> Callable[..., Any]:
        steps = 0

        def faulty(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > FIRST_STEPS:
                fault()
            return batch(*args, **kwargs)

        return faulty

    for data in (Digits, Texts):
        data.batch = replaced(data.batch)  # type: ignore[method-assign]  # the fault


def wait_for_data() -> None:
    """Wait for a batch that never comes."""
    after_first_steps(lambda: time.sleep(3600))


def delay_first_step() -> None:
    """Start the first step 6 seconds late, and end it 6 seconds late."""
    step = Training.step

    def delayed(self: Training, *args: Any, **kwargs: Any) -> None:
        Training.step = step  # type: ignore[method-assign]  # once
        time.sleep(6)
        step(self, *args, **kwargs)
        time.sleep(6)

    Training.step = delayed  # type: ignore[method-assign]  # the fault


def load_slowly() -> None:
    """Load the data 8 seconds later than other ranks, with heartbeats."""
    build: Callable[[RecipeConfig, Runtime], Task] = vars(loop)["build_task"]

    def slow(config: RecipeConfig, runtime: Runtime) -> Task:
        print("loading", flush=True)
        for _ in range(16):
            time.sleep(0.5)
            runtime.heartbeat()
        return build(config, runtime)

    vars(loop)["build_task"] = slow


def exhaust_memory() -> None:
    """Allocate more memory than any host has."""
    after_first_steps(lambda: torch.empty(2**60))


def raise_unexpected_error() -> None:
    """Raise an error that the trainer does not handle."""
    after_first_steps(lambda: 1 / 0)


def die_in_second_save() -> None:
    """Die by SIGKILL in the second save of this start, if KILLS_IN_A_SAVE has an entry for this start and rank."""
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for hook, rank, call in KILLS_IN_A_SAVE[start : start + 1]:
        if rank == int(os.environ["RANK"]):
            die_in_hook(hook, call)


def die_in_hook(name: str, call: int) -> None:
    """Die by SIGKILL when the second save calls this hook for the `call`-th time."""
    hook, calls = getattr(RunCheckpoints, name), dict[int, int]()

    def dying(self: RunCheckpoints, *args: Any) -> None:
        calls[self.saving_step] = calls.get(self.saving_step, 0) + 1
        if len(calls) > 1 and calls[self.saving_step] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        hook(self, *args)

    setattr(RunCheckpoints, name, dying)


def slow_down() -> None:
    """Make each step of this rank take three times as long."""
    step = Training.step
    step_seconds = 0.02

    def slowed(batch: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(*args: Any, **kwargs: Any) -> Any:
            # Use CPU time instead of a sleep, because a busy machine then delays this as much as the step.
            until = time.thread_time() + 2 * step_seconds
            while time.thread_time() < until:
                pass
            return batch(*args, **kwargs)

        return fetch

    def timed(self: Training, *args: Any, **kwargs: Any) -> None:
        nonlocal step_seconds
        started = time.thread_time()
        step(self, *args, **kwargs)
        step_seconds = time.thread_time() - started

    for data in (Digits, GeneratedImages, Texts):
        data.batch = slowed(data.batch)  # type: ignore[method-assign]  # the fault
    Training.step = timed  # type: ignore[method-assign]  # the fault


def evaluate_without_end() -> None:
    """Evaluate without end, and print a line after the first pass over the test set."""

    def repeated(batches: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
        def endless(*args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from batches(*args, **kwargs)
            print("evaluating", flush=True)
            while True:
                yield from batches(*args, **kwargs)

        return endless

    for data in (Digits, Texts):
        data.test_batches = repeated(data.test_batches)  # type: ignore[method-assign]  # the fault


def preempt_in_first_step() -> None:
    """Receive SIGTERM in the first step, after the exchange of gradients. Other ranks may have finished the step."""
    sync = Runtime.sync_gradients

    def signalled(self: Runtime, model: nn.Module) -> None:
        sync(self, model)
        Runtime.sync_gradients = sync  # type: ignore[method-assign]  # once
        os.kill(os.getpid(), signal.SIGTERM)

    Runtime.sync_gradients = signalled  # type: ignore[method-assign]  # the fault


FAULTS: dict[str, Callable[[], object]] = {
    "sleep": wait_for_data,
    "late": delay_first_step,
    "loading": load_slowly,
    "memory": exhaust_memory,
    "unexpected": raise_unexpected_error,
    "slow": slow_down,
    "endless": evaluate_without_end,
    "preempted": preempt_in_first_step,
    "killed": die_in_second_save,
    "none": lambda: None,
}
"""Name of a fault -> function that prepares the fault in this process."""


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
