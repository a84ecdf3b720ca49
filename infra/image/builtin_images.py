"""The images that Trainyard builds beside the trainer's, for jobs whose software does not go with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class OwnImage:
    """One image of Trainyard's own."""

    folder: str
    """Folder of its sources, in the project."""
    dockerfile: str
    """Its Dockerfile, in the project."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments of this image."""
    everywhere: bool = False
    """Whether the clouds' platforms build it too, as a variant of the trainer's image."""


BUILT_HERE = "trainyard.local/"
"""Beginning of the names of images that platform `local` builds: no registry has them."""
TRAINER = "trainer"
"""The image of jobs that name none."""
OWN_IMAGES: Mapping[str, OwnImage] = MappingProxyType(
    {
        "cuda12": OwnImage(
            folder="trainer",
            dockerfile="trainer/Dockerfile",
            arguments=MappingProxyType({"TORCH": "-cuda12"}),
            everywhere=True,
        ),
        "etcd": OwnImage(folder="images/etcd", dockerfile="images/etcd/Dockerfile"),
        "horovod": OwnImage(folder="images/horovod", dockerfile="images/horovod/Dockerfile"),
        "stores": OwnImage(folder="images/stores", dockerfile="images/stores/Dockerfile"),
        "xla": OwnImage(folder="trainer", dockerfile="trainer/Dockerfile.xla", everywhere=True),
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
