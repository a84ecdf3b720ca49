"""ImageConfig: build and registry settings of a cloud platform's trainer image, and their validation. No Pulumi."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator

from settings.problem import Invalid, Problem
from settings.types import ONE_OR_MANY, Image, Section

ImagePlatform = Literal["linux/amd64", "linux/arm64"]
_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise Invalid("image_name", "must be an image name without registry and tag; write for example 'sh22-dist-gpu'")
    return value


def _branch(value: str) -> str:
    if not _TAG.fullmatch(value):
        raise Invalid(
            "git_branch", "must be the name of a Git branch, of at most 128 letters, digits, '.', '_', '-' and '/'"
        )
    return value


def _prebuilt(value: str) -> str:
    if "@sha256:" not in value:
        raise Invalid("image_digest", "must have a digest; write for example 'example.com/team/trainer@sha256:...'")
    return value


def _architectures(value: tuple[ImagePlatform, ...]) -> tuple[ImagePlatform, ...]:
    if not value or len(set(value)) != len(value):
        raise Invalid("image_platforms", "must be one or more different architectures; write for example 'linux/amd64'")
    return value


class ImageConfig(Section):
    """Trainer image: built with buildx from this checkout and pushed, or prebuilt."""

    name: Annotated[str, AfterValidator(_name)] = "sh22-dist-gpu"
    """Name of the image in the registry."""
    git_branch: Annotated[str, AfterValidator(_branch)] = "main"
    """Git branch of the checkout, used as the image's tag with `/` replaced by `-`."""
    python_version: Literal["3.11", "3.12", "3.13"] = "3.11"
    """Python version in the image; PyTorch does not support the W&B tutorial's 3.8."""
    platforms: Annotated[tuple[ImagePlatform, ...], AfterValidator(_architectures), ONE_OR_MANY] = (
        "linux/amd64",
        "linux/arm64",
    )
    """Processor architectures of the image."""
    prebuilt: Annotated[Image, AfterValidator(_prebuilt)] | None = None
    """Prebuilt trainer image with its digest, instead of a build; jobs on XLA must then set `image`."""


BUILD_KEYS = ("name", "git_branch", "python_version", "platforms")


def image_problems(image: ImageConfig) -> Iterator[Problem]:
    """Yield a problem for build keys together with `prebuilt`, and for an image that no node can run."""
    if image.prebuilt:
        for key in BUILD_KEYS:
            if key in image.model_fields_set:
                message = "has no effect with `prebuilt`, which disables the build; remove one of the two"
                value = getattr(image, key)
                yield Problem(
                    "image.prebuilt.build_key",
                    ("platform", "image", key),
                    message,
                    list(value) if key == "platforms" else value,
                )
    elif "linux/amd64" not in image.platforms:
        message = "must include linux/amd64, because all machine types in Trainyard's tables are x86-64; add it"
        yield Problem("image.platforms.no_amd64", ("platform", "image", "platforms"), message, list(image.platforms))
