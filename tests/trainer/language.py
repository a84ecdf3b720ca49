"""Runs of small language models on generated texts, for tests with real ranks."""

from __future__ import annotations

import random
from pathlib import Path

from tests.trainer.processes import RunResult, metrics, run

CONTEXT, GLOBAL_BATCH, STEPS = 32, 8, 50
SENTENCE = "the people of these states shall have peace and a just law for all who work and hope"
WORDS = SENTENCE.split()
MODEL = ("--layers=2", "--width=64", "--heads=4", "--kv-heads=2", "--hidden=96", f"--context={CONTEXT}")
FLAGS = (*MODEL, "--device=cpu", "--sample-tokens=0", "--log-steps=1", "--process-group-timeout=60")
CONSTANT_RATE_FLAGS = ("--warmup=0", "--final-rate=1", "--learning-rate=3e-4")
"""Flags of a low and constant learning rate.

Rounding errors then stay small, and the learning rate does not depend on the length of the run.
"""
UNCHANGING_FLAGS = ("--learning-rate=1e-30", "--warmup=0", "--weight-decay=0")
"""Flags of a run that hardly changes its weights."""


def write_texts(folder: Path, *, steps: int = STEPS) -> Path:
    """Write texts into the folder, and return it. An epoch has this number of steps of GLOBAL_BATCH samples."""
    rng = random.Random(0)
    for split, tokens in (("train", steps * GLOBAL_BATCH * CONTEXT), ("test", 30 * CONTEXT)):
        (folder / split).mkdir(parents=True)
        for number, size in enumerate((tokens // 3, tokens - tokens // 3)):
            text = " ".join(rng.choice(WORDS) for _ in range(size))
            # The separator of each document counts as a token to predict.
            (folder / split / f"{number}.txt").write_text(text[: size - 1], encoding="ascii")
    return folder


def train(
    data: Path, bucket: Path, *flags: str, ranks: int = 1, batches: int = 1, program: str = "trainer"
) -> RunResult:
    """Train to the end, with GLOBAL_BATCH samples per step.

    `batches` is the number of batches in a step: one for each rank or group of ranks that has its own samples.
    """
    words = (*FLAGS, f"--batch-size={GLOBAL_BATCH // batches}", f"--bucket=file://{bucket}", *flags)
    return run(*words, recipe="language", processes=ranks if ranks > 1 else 0, data=data, program=program)


def losses(bucket: Path, ranks: int) -> list[float]:
    """Return the loss of each step, averaged over the ranks."""
    by_rank = [[event["loss"] for event in metrics(bucket, "train", rank=rank)] for rank in range(ranks)]
    return [sum(step) / ranks for step in zip(*by_rank, strict=True)]


def evaluations(bucket: Path) -> list[float]:
    return [event["loss"] for event in metrics(bucket, "test")]
