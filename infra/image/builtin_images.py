"""Builtin images, which Trainyard builds, and the references of jobs' images. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeVar


@dataclass(frozen=True, kw_only=True)
class BuiltinImage:
    """Image that Trainyard builds."""

    folder: str
    """Folder of the sources, relative to the project."""
    dockerfile: str
    """Path of the Dockerfile, relative to the project."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of the project -> their paths below WORK_FOLDER."""
    data: frozenset[str] = frozenset({"digits"})
    """Folders with data below WORK_FOLDER."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    everywhere: bool = False
    """True if the cloud platforms also build it, as a variant of the trainer image."""


T = TypeVar("T")

BUILT_HERE = "trainyard.local/"
"""Name prefix of the images that platform `local` builds. No registry has them."""
TRAINER = "trainer"
"""Image of jobs that do not set `image`."""
WORK_FOLDER = PurePosixPath("/opt/trainyard")
"""Working directory of the images."""
TRAINER_IMAGE = BuiltinImage(
    folder="trainer",
    dockerfile="trainer/Dockerfile",
    sources=MappingProxyType({"trainer": "trainer", "trainer/data/made_images.py": "made_images.py"}),
    data=frozenset({"digits", "tiny-imagenet"}),
    everywhere=True,
)
BUILTIN_IMAGES: Mapping[str, BuiltinImage] = MappingProxyType(
    {
        "cuda12": replace(TRAINER_IMAGE, arguments=MappingProxyType({"TORCH": "-cuda12"})),
        "etcd": BuiltinImage(folder="images/etcd", dockerfile="images/etcd/Dockerfile", data=frozenset()),
        "horovod": BuiltinImage(
            folder="images/horovod",
            dockerfile="images/horovod/Dockerfile",
            sources=MappingProxyType({"images/horovod/recipes": "recipes"}),
        ),
        "stores": BuiltinImage(
            folder="images/stores",
            dockerfile="images/stores/Dockerfile",
            sources=MappingProxyType({"images/stores/serve.py": "serve.py"}),
        ),
        "xla": BuiltinImage(
            folder="trainer",
            dockerfile="trainer/Dockerfile.xla",
            sources=MappingProxyType({"trainer": "trainer"}),
            everywhere=True,
        ),
    }
)
"""Builtin images by the name in a job's `image`.

`cuda12`: the trainer with CUDA 12, the default on V100s. `etcd`: etcd for rendezvous. `horovod`: TensorFlow and MXNet
with Horovod over OpenMPI. `stores`: an object store for recipes. `xla`: the trainer with PyTorch/XLA, the default on
XLA.
"""


@dataclass(frozen=True, kw_only=True)
class ImageRef:
    """Image of a job: a builtin image or a reference in a registry."""

    builtin: str | None = None
    """Name of a builtin image; None for a reference."""
    reference: str | None = None
    """Reference in a registry; None for a builtin image."""

    @classmethod
    def parse(cls, text: str) -> ImageRef:
        """Return the image that a job's settings name."""
        is_builtin = text == TRAINER or text in BUILTIN_IMAGES
        return cls(builtin=text) if is_builtin else cls(reference=text)

    def resolve(self, built: Mapping[str, T], trainer: T) -> T | str:
        """Return the reference of the image. `built` are the platform's builtin images other than `trainer`.

        A platform that does not build them runs all jobs in the one image of its settings.
        """
        return self.reference or built.get(self.builtin or TRAINER, trainer)


def built_everywhere(images: frozenset[str]) -> frozenset[str]:
    """Return the builtin images that the cloud platforms also build."""
    return frozenset(name for name in images if name == TRAINER or BUILTIN_IMAGES[name].everywhere)
