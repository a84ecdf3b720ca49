"""The images that Trainyard builds beside the trainer's, for jobs whose software does not go with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

OWN_IMAGES: Mapping[str, str] = MappingProxyType({"horovod": "images/horovod"})
"""Folder in the project by the name that a job's `image` gives: TensorFlow and MXNet with Horovod over OpenMPI."""


def own_images(images: Iterable[str | None]) -> frozenset[str]:
    """Those of the jobs' images that are Trainyard's own."""
    return frozenset(image for image in images if image is not None and image in OWN_IMAGES)
