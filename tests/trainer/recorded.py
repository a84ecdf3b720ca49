"""Run the trainer and record its samples: `python -m tests.trainer.recorded FILE RECIPE --flags`.

Each process writes FILE.PID. For each sample of a finished step, the file has a line `[epoch, sample]`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.__main__ import main
from trainer.data.datasets import Batch, Digits
from trainer.data.sampler import Share
from trainer.data.texts import Texts
from trainer.loop import Training


def record(path: Path) -> None:
    """Make each finished step append its samples to the file at `path`."""
    step = Training.step
    fetched: list[Share] = []

    def recorded(batch: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(self: object, share: Share, **kwargs: Any) -> Any:
            fetched.append(share)
            return batch(self, share, **kwargs)

        return fetch

    def step_and_record(self: Training, batch: Batch) -> None:
        step(self, batch)
        share = fetched.pop()
        assert not fetched, "a step must fetch exactly one batch"
        with path.open("a", encoding="ascii") as file:
            file.writelines(json.dumps([share.epoch, sample]) + "\n" for sample in share.indices.tolist())

    for data in (Digits, Texts):
        data.batch = recorded(data.batch)  # type: ignore[method-assign]  # wraps the method
    Training.step = step_and_record  # type: ignore[method-assign]  # wraps the method


if __name__ == "__main__":
    record(Path(f"{sys.argv.pop(1)}.{os.getpid()}"))
    if code := main():
        sys.stdout.flush()
        os._exit(code)
