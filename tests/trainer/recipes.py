"""Recipes with small data for tests: an epoch has 25 steps of 16 samples."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.trainer.language import MODEL, write_texts
from tests.trainer.processes import ActiveRun, RunResult, run, started

ENDLESS = ("--epochs=1000", "--log-steps=1", "--batch-size=8")
"""Flags of a run that does not end before the test ends it."""


@dataclass(frozen=True)
class Recipe:
    """A recipe, its flags and its data."""

    name: str
    data: Path
    flags: tuple[str, ...] = ()
    """Flags that make a run short. They shard the weights of a language model across all ranks."""
    large_model_flags: tuple[str, ...] = ()
    """Flags of a model whose checkpoint is larger than four MiB."""
    metric: str = "accuracy"
    """Name of the main metric of an evaluation."""
    tolerance: float = 3
    """Largest allowed difference of this metric between runs with different numbers of ranks."""

    def started(self, *flags: str, bucket: Path | None = None, **options: Any) -> AbstractContextManager[ActiveRun]:
        """Start a run of this recipe, with the options of `processes.started`."""
        return started(*self._flags(flags, bucket), recipe=self.name, data=self.data, **options)

    def run(self, *flags: str, bucket: Path | None = None, **options: Any) -> RunResult:
        """Run this recipe, with the options of `processes.run`."""
        return run(*self._flags(flags, bucket), recipe=self.name, data=self.data, **options)

    def _flags(self, flags: tuple[str, ...], bucket: Path | None) -> tuple[str, ...]:
        return (*self.flags, *flags, *([f"--bucket=file://{bucket}"] if bucket else []))


def digits_recipe(data: Path) -> Recipe:
    """Return the digits recipe for a folder with 500 digits."""
    return Recipe("digits", data)


def language_recipe(folder: Path) -> Recipe:
    """Write texts into the folder, and return the language recipe for them."""
    flags = (*MODEL, "--sample-tokens=0", "--parallelism=shard=auto")
    large_model_flags = ("--preset=1m", "--context=32", "--parallelism=shard=auto")
    return Recipe("language", write_texts(folder / "texts"), flags, large_model_flags, "bits_per_byte", 0.05)
