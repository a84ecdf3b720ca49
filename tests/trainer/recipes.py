"""Recipes of the fault tests, each with small data: 25 steps of 16 samples per epoch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.trainer.language import MODEL, write_texts
from tests.trainer.processes import Ended, Running, run, started

ENDLESS = ("--epochs=1000", "--log-steps=1", "--batch-size=8")
"""Flags of a run that a test ends."""


@dataclass(frozen=True)
class Recipe:
    """A recipe, its flags and its data."""

    name: str
    data: Path
    flags: tuple[str, ...] = ()
    """Flags that make a run short. The weights of a language model are sharded across two ranks."""
    large: tuple[str, ...] = ()
    """Flags of a model with more weights."""
    measure: str = "accuracy"
    """Main measure of an evaluation."""
    tolerance: float = 3
    """Largest difference of this measure between two numbers of ranks."""

    def started(self, *flags: str, bucket: Path | None = None, **options: Any) -> AbstractContextManager[Running]:
        """Start a short run of this recipe, with the options of `processes.started`."""
        return started(*self._flags(flags, bucket), recipe=self.name, data=self.data, **options)

    def run(self, *flags: str, bucket: Path | None = None, **options: Any) -> Ended:
        """Run this recipe, with the options of `processes.run`."""
        return run(*self._flags(flags, bucket), recipe=self.name, data=self.data, **options)

    def _flags(self, flags: tuple[str, ...], bucket: Path | None) -> tuple[str, ...]:
        return (*self.flags, *flags, *([f"--bucket=file://{bucket}"] if bucket else []))


def digits_recipe(data: Path) -> Recipe:
    """Return the digits recipe with 500 digits."""
    return Recipe("digits", data)


def language_recipe(folder: Path) -> Recipe:
    """Write texts into this folder, and return the language recipe with them."""
    flags = (*MODEL, "--sample-tokens=0", "--parallelism=shard=auto")
    large = ("--preset=1m", "--context=32", "--parallelism=shard=auto")
    return Recipe("language", write_texts(folder / "texts"), flags, large, "bits_per_byte", 0.05)
