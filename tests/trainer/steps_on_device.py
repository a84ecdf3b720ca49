"""Run steps that must not wait for the device: `python -m tests.trainer.steps_on_device RECIPE --flags`."""

from __future__ import annotations

import sys

import torch

from trainer.config import parse
from trainer.loop import Training
from trainer.reporter import Reporter
from trainer.runtime import start_runtime
from trainer.watchdog import Watchdog

WARM_UP_STEPS, CHECKED_STEPS = 3, 5
"""Numbers of steps: of the first ones, which may wait for the device, and of the next ones, which must not."""


def main() -> None:
    """Run all steps, then print the sum of each step's images."""
    config = parse(sys.argv[1:])
    runtime = start_runtime(config)
    report = Reporter(0, 1, None)
    watchdog = Watchdog(runtime, on_slow=lambda _rank, _ratio: None)
    training = Training(config, runtime, report, None, watchdog, lambda: False)
    sums: list[torch.Tensor] = []
    training.model.train()
    for number in range(WARM_UP_STEPS + CHECKED_STEPS):
        if number == WARM_UP_STEPS and runtime.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        if not training.sampler.steps_left:
            training.sampler.next_epoch()
        batch = training.data.batch(training.sampler.next(), world=1)
        training.step(batch)
        sums.append(batch.inputs.double().sum())
    if runtime.device.type == "cuda":
        torch.cuda.set_sync_debug_mode("default")
    for images in torch.stack(sums).tolist():
        print(f"step images={images}", flush=True)


if __name__ == "__main__":
    main()
