"""Accelerator names, and suggestions for unknown names. Pure."""

from __future__ import annotations

import re
from difflib import get_close_matches

from infra.hardware.gpus import GPUS
from infra.hardware.tpus import GENERATIONS, is_tpu, tpu_slice

MAKERS = frozenset({"nvidia", "tesla"})
"""Words in GPU names that do not identify the model."""


def is_accelerator(name: str) -> bool:
    """Return True if a name is a GPU model or has the form of a TPU name."""
    return name in GPUS or is_tpu(name)


def what_is_one(name: str) -> str:
    """Return suggestions for an unknown accelerator name: similar names, and all names."""
    near = _near(name.lower())
    generations = ", ".join(f"{row.name} ({row.type_prefix}-N)" for row in GENERATIONS.values())
    known = f"a GPU, one of {', '.join(GPUS)}, or a TPU such as v4-32, of generation {generations}"
    return "is not an accelerator; write " + (f"{' or '.join(near)}; allowed: {known}" if near else known)


def _near(name: str) -> list[str]:
    """Return the accelerators most similar to a lower-case name."""
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
