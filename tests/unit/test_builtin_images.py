"""Builtin images that share layers with the trainer image have its first build steps and its package versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.builtin_images import BUILTIN_IMAGES

PROJECT = Path(__file__).parents[2]
SHARING_IMAGES = [name for name, image in BUILTIN_IMAGES.items() if image.trainer_files]


def steps(dockerfile: str) -> list[str]:
    """Return the instructions of a Dockerfile, without comments."""
    lines = (PROJECT / dockerfile).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", "")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def pins(requirements: Path) -> set[str]:
    """Return the packages of a requirements file with their versions."""
    return set(re.findall(r"^\S+==\S+", requirements.read_text(encoding="utf-8"), re.M))


@pytest.mark.parametrize("name", SHARING_IMAGES)
def test_image_has_the_first_steps_of_the_trainer_image(name: str) -> None:
    own, trainer = steps(BUILTIN_IMAGES[name].dockerfile), steps("trainer/Dockerfile")
    first_difference = next(index for index, pair in enumerate(zip(own, trainer, strict=False)) if pair[0] != pair[1])
    assert "requirements${TORCH}.txt" in own[first_difference - 1], "the layer of torch must be shared"


@pytest.mark.parametrize("name", SHARING_IMAGES)
def test_image_has_every_package_of_the_trainer_image_at_the_same_version(name: str) -> None:
    own = pins(PROJECT / BUILTIN_IMAGES[name].folder / "requirements.txt")
    assert pins(PROJECT / "trainer" / "requirements.txt") < own
