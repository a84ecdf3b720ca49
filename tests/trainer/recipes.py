"""Recipes of the fault tests, each with small data: 25 steps of 16 samples per epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.trainer.language import MODEL, write_texts


@dataclass(frozen=True)
class Recipe:
    """A recipe, its flags and its data."""

    name: str
    data: Path
    flags: tuple[str, ...] = ()
    """Flags that make a run short. Two ranks share the weights of a language model."""
    large: tuple[str, ...] = ()
    """Flags of a model with more weights."""
    measure: str = "accuracy"
    """Main measure of an evaluation."""
    tolerance: float = 3
    """Largest difference of this measure between two numbers of ranks."""


def digits_recipe(data: Path) -> Recipe:
    """Return the digits recipe with 500 digits."""
    return Recipe("digits", data)


def language_recipe(folder: Path) -> Recipe:
    """Write texts into this folder, and return the language recipe with them."""
    flags = (*MODEL, "--sample-tokens=0", "--parallelism=shard=auto")
    large = ("--preset=1m", "--context=32", "--parallelism=shard=auto")
    return Recipe("language", write_texts(folder / "texts"), flags, large, "bits_per_byte", 0.05)
