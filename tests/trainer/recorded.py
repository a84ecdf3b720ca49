"""Run the trainer and record its samples: `python -m tests.trainer.recorded FILE digits --flags`.

Each process writes FILE.PROCESS, with a line `[epoch, sample]` for each sample of every finished step.
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
    """Intercept the data and the steps."""
    step = Training.step
    asked: list[Share] = []

    def recorded(batch: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(self: object, share: Share, **more: Any) -> Any:
            asked.append(share)
            return batch(self, share, **more)

        return fetch

    def note(self: Training, of_step: Batch) -> None:
        step(self, of_step)
        share = asked.pop()
        assert not asked, "one step takes one batch"
        with path.open("a", encoding="ascii") as file:
            file.writelines(json.dumps([share.epoch, sample]) + "\n" for sample in share.indices.tolist())

    for data in (Digits, Texts):
        data.batch = recorded(data.batch)  # type: ignore[method-assign]  # listens in
    Training.step = note  # type: ignore[method-assign,assignment]  # listens in


if __name__ == "__main__":
    record(Path(f"{sys.argv.pop(1)}.{os.getpid()}"))
    if code := main():
        sys.stdout.flush()
        os._exit(code)
