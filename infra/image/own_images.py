"""The images that Trainyard builds beside the trainer's, for jobs whose software does not go with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class OwnImage:
    """One image of Trainyard's own."""

    folder: str
    """Folder of its sources, in the project."""
    dockerfile: str
    """Its Dockerfile, in the project."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of the project -> their places below WORK_FOLDER."""
    data: frozenset[str] = frozenset({"digits"})
    """Folders with data below WORK_FOLDER."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments of this image."""
    everywhere: bool = False
    """Whether the clouds' platforms build it too, as a variant of the trainer's image."""


BUILT_HERE = "trainyard.local/"
"""Beginning of the names of images that platform `local` builds: no registry has them."""
TRAINER = "trainer"
"""The image of jobs that name none."""
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
"""By the name that a job's `image` gives: the trainer on CUDA 12, which a job on V100s has by itself; the etcd of a
job's own; TensorFlow and MXNet with Horovod over OpenMPI; an object store for recipes; the trainer on PyTorch/XLA,
which a job on XLA has by itself."""


def own_images(images: Iterable[str | None]) -> frozenset[str]:
    """Those of the jobs' images that are Trainyard's own."""
    return frozenset(image for image in images if image is not None and image in OWN_IMAGES)


def built_everywhere(images: frozenset[str]) -> frozenset[str]:
    """Those of Trainyard's own images that the clouds' platforms build too."""
    return frozenset(name for name in images if name == TRAINER or OWN_IMAGES[name].everywhere)
