"""What to write in the place of a name that is no accelerator. Pure."""

from __future__ import annotations

import re
from difflib import get_close_matches

from infra.hardware.gpus import GPUS
from infra.hardware.tpus import GENERATIONS, is_tpu, tpu_slice

MAKERS = frozenset({"nvidia", "tesla"})
"""Words of GPUs' names that say nothing of the model."""


def is_accelerator(name: str) -> bool:
    """Whether a name is a GPU's, or meant for a TPU."""
    return name in GPUS or is_tpu(name)


def what_is_one(name: str) -> str:
    """Says what a name that is no accelerator should be: those that are most like it, and all that there are."""
    near = _near(name.lower())
    generations = ", ".join(f"{row.name} ({row.type_prefix}-N)" for row in GENERATIONS.values())
    known = f"a GPU, one of {', '.join(GPUS)}, or a TPU such as v4-32, of generation {generations}"
    return "is no accelerator; write " + (f"{' or '.join(near)}; allowed: {known}" if near else known)


def _near(name: str) -> list[str]:
    """The accelerators that a name in small letters is most like."""
    generation, dash, count = name.partition("-")
    if generation in GENERATIONS:
        name = f"{GENERATIONS[generation].type_prefix}{dash}{count}" if count else generation
    if is_tpu(name):
        try:
            return [tpu_slice(name).accelerator_type] if count else [name]
        except ValueError:
            return []
    words = set(re.split(r"[^a-z0-9]+", name)) - MAKERS
    return [gpu for gpu in GPUS if words and words <= set(gpu.split("-"))] or get_close_matches(name, GPUS, n=1)
