"""Run the trainer with emulated float8, which needs no GPU: `python -m tests.trainer.emulated_float8 RECIPE --flags`."""

from __future__ import annotations

from functools import partial

from trainer.__main__ import exit_process, main
from trainer.language import float8, task

if __name__ == "__main__":
    task.check_device = lambda _recipe, _device: None
    task.use_float8 = partial(float8.use_float8, emulate=True)
    exit_process(main())
