"""Builtin images, for jobs whose software is incompatible with the trainer image. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class OwnImage:
    """Image that Trainyard builds."""

    folder: str
    """Folder of the sources, relative to the project."""
    dockerfile: str
    """Path of the Dockerfile, relative to the project."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of the project -> their paths below WORK_FOLDER."""
    trainer_files: tuple[str, ...] = ()
    """Files of `trainer/` that it installs from. Steps that equal the trainer image's first steps share its layers."""
    data: frozenset[str] = frozenset({"digits"})
    """Folders with data below WORK_FOLDER."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    everywhere: bool = False
    """True if the cloud platforms also build it, as a variant of the trainer image."""


BUILT_HERE = "trainyard.local/"
"""Name prefix of the images that platform `local` builds. No registry has them."""
TRAINER = "trainer"
"""Image of jobs that do not set `image`."""
WORK_FOLDER = PurePosixPath("/opt/trainyard")
"""Working directory of the images."""
TRAINER_IMAGE = OwnImage(
    folder="trainer",
    dockerfile="trainer/Dockerfile",
    sources=MappingProxyType({"trainer": "trainer", "trainer/data/made_images.py": "made_images.py"}),
    data=frozenset({"digits", "tiny-imagenet"}),
    everywhere=True,
)
OWN_IMAGES: Mapping[str, OwnImage] = MappingProxyType(
    {
        "cuda12": replace(TRAINER_IMAGE, arguments=MappingProxyType({"TORCH": "-cuda12"})),
        "etcd": OwnImage(folder="images/etcd", dockerfile="images/etcd/Dockerfile", data=frozenset()),
        "horovod": OwnImage(
            folder="images/horovod",
            dockerfile="images/horovod/Dockerfile",
            sources=MappingProxyType({"images/horovod/recipes": "recipes"}),
        ),
        "ray": OwnImage(
            folder="images/ray",
            dockerfile="images/ray/Dockerfile",
            sources=MappingProxyType({"images/ray/recipes": "recipes"}),
            trainer_files=("requirements.txt", "requirements-cuda12.txt"),
        ),
        "stores": OwnImage(
            folder="images/stores",
            dockerfile="images/stores/Dockerfile",
            sources=MappingProxyType({"images/stores/serve.py": "serve.py"}),
        ),
        "xla": OwnImage(
            folder="trainer",
            dockerfile="trainer/Dockerfile.xla",
            sources=MappingProxyType({"trainer": "trainer"}),
            everywhere=True,
        ),
    }
)
"""Builtin images by the name in a job's `image`.

`cuda12`: the trainer with CUDA 12, the default on V100s. `etcd`: etcd for rendezvous. `horovod`: TensorFlow and MXNet
with Horovod over OpenMPI. `ray`: Ray with the trainer's torch. `stores`: an object store for recipes. `xla`: the
trainer with PyTorch/XLA, the default on XLA.
"""


def own_images(images: Iterable[str | None]) -> frozenset[str]:
    """Return the builtin images among the jobs' images."""
    return frozenset(image for image in images if image is not None and image in OWN_IMAGES)


def built_everywhere(images: frozenset[str]) -> frozenset[str]:
    """Return the builtin images that the cloud platforms also build."""
    return frozenset(name for name in images if name == TRAINER or OWN_IMAGES[name].everywhere)
