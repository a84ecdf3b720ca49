"""Run the trainer with emulated float8, without a GPU: `python -m tests.trainer.emulated_float8 RECIPE --flags`."""

from __future__ import annotations

from functools import partial
from unittest import mock

from trainer.__main__ import exit_process, main
from trainer.language.decoder import use_float8

if __name__ == "__main__":
    with mock.patch("trainer.language.task.use_float8", partial(use_float8, emulate=True)):
        exit_process(main())
