"""Validation of the image settings of every cloud platform. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator

from infra.image.config import ImageConfig
from settings.problem import Problem

OF_A_BUILD = ("name", "git_branch", "python_version", "platforms")


def image_problems(image: ImageConfig) -> Iterator[Problem]:
    """Yield problems: build keys together with `prebuilt`, and architectures that no node can run."""
    if image.prebuilt:
        for key in OF_A_BUILD:
            if key in image.model_fields_set:
                message = "is for a build, and `prebuilt` disables the build; remove one of the two"
                value = getattr(image, key)
                yield Problem(
                    "image.prebuilt.build_key",
                    ("platform", "image", key),
                    message,
                    list(value) if key == "platforms" else value,
                )
    elif "linux/amd64" not in image.platforms:
        message = "every machine type that Trainyard knows is x86-64; add linux/amd64"
        yield Problem("image.platforms.no_amd64", ("platform", "image", "platforms"), message, list(image.platforms))
