"""Runs of small language models on generated texts, for tests with real ranks."""

from __future__ import annotations

import random
from pathlib import Path

from tests.trainer.processes import Ended, metrics, run

CONTEXT, GLOBAL_BATCH, STEPS = 32, 8, 50
SENTENCE = "the people of these states shall have peace and a just law for all who work and hope"
WORDS = SENTENCE.split()
MODEL = ("--layers=2", "--width=64", "--heads=4", "--kv-heads=2", "--hidden=96", f"--context={CONTEXT}")
FLAGS = (*MODEL, "--device=cpu", "--sample-tokens=0", "--log-steps=1", "--process-group-timeout=60")
STEADY = ("--warmup=0", "--final-rate=1", "--learning-rate=3e-4")
"""Flags of a run in which rounding errors stay small, and whose learning rate does not depend on its length."""


def write_texts(folder: Path, *, steps: int = STEPS) -> Path:
    """Write texts whose epoch has this many steps of GLOBAL_BATCH samples, and return the folder."""
    chance = random.Random(0)
    for split, tokens in (("train", steps * GLOBAL_BATCH * CONTEXT), ("test", 30 * CONTEXT)):
        (folder / split).mkdir(parents=True)
        for number, size in enumerate((tokens // 3, tokens - tokens // 3)):
            text = " ".join(chance.choice(WORDS) for _ in range(size))
            # Each document has a separator, which is predicted too.
            (folder / split / f"{number}.txt").write_text(text[: size - 1], encoding="ascii")
    return folder


def train(data: Path, bucket: Path, *flags: str, ranks: int = 1, shares: int = 1, program: str = "trainer") -> Ended:
    """Train to the end with GLOBAL_BATCH samples a step, divided into `shares` batches."""
    words = (*FLAGS, f"--batch-size={GLOBAL_BATCH // shares}", f"--bucket=file://{bucket}", *flags)
    return run(*words, recipe="language", processes=ranks if ranks > 1 else 0, data=data, program=program)


def losses(bucket: Path, ranks: int) -> list[float]:
    """Return the mean loss over ranks of each step."""
    by_rank = [[event["loss"] for event in metrics(bucket, "train", rank=rank)] for rank in range(ranks)]
    return [sum(step) / ranks for step in zip(*by_rank, strict=True)]


def evaluations(bucket: Path) -> list[float]:
    return [event["loss"] for event in metrics(bucket, "test")]
