"""Builtin images, for jobs whose software is incompatible with the trainer image. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class OwnImage:
    """Image that Trainyard builds."""

    folder: str
    """Folder of the sources, relative to the project."""
    dockerfile: str
    """Path of the Dockerfile, relative to the project."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    everywhere: bool = False
    """True if the cloud platforms also build it, as a variant of the trainer image."""


BUILT_HERE = "trainyard.local/"
"""Name prefix of the images that platform `local` builds. No registry has them."""
TRAINER = "trainer"
"""Image of jobs that do not set `image`."""
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
"""Builtin images by the name in a job's `image`.

`cuda12`: the trainer with CUDA 12, the default on V100s. `etcd`: etcd for rendezvous. `horovod`: TensorFlow and MXNet
with Horovod over OpenMPI. `stores`: an object store for recipes. `xla`: the trainer with PyTorch/XLA, the default on
XLA.
"""


def own_images(images: Iterable[str | None]) -> frozenset[str]:
    """Return the builtin images among the jobs' images."""
    return frozenset(image for image in images if image is not None and image in OWN_IMAGES)


def built_everywhere(images: frozenset[str]) -> frozenset[str]:
    """Return the builtin images that the cloud platforms also build."""
    return frozenset(name for name in images if name == TRAINER or OWN_IMAGES[name].everywhere)
