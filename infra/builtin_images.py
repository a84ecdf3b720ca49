"""BuiltinImage: image that Trainyard builds. JobLayer: a job's layer on such an image. ImageRef: a job's image."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath


@dataclass(frozen=True, kw_only=True)
class BuiltinImage:
    """Image that Trainyard builds."""

    folder: str
    """Folder of the sources, relative to the project."""
    dockerfile: str
    """Path of the Dockerfile, relative to the project."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of the project -> their paths below WORK_FOLDER."""
    trainer_files: tuple[str, ...] = ()
    """Requirements files of `trainer/` that the Dockerfile copies, to share the trainer image's layer of packages."""
    data: frozenset[str] = frozenset({"digits"})
    """Names of the data folders below WORK_FOLDER."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments of the Dockerfile, in addition to the base image."""
    is_built_for_clouds: bool = False
    """True if the cloud platforms also build this image, as a variant of the trainer image."""
    installs_packages: bool = False
    """True if the image contains uv, which installs the packages of a job's `requirements`."""


LOCAL_PREFIX = "trainyard.local/"
"""Prefix of the references of images that platform `local` builds. No registry has these images."""
TRAINER = "trainer"
"""Name of the trainer image, the default of jobs except on V100s and on XLA."""
WORK_FOLDER = PurePosixPath("/opt/trainyard")
"""Working directory of the images."""
TRAINER_IMAGE = BuiltinImage(
    folder="trainer",
    dockerfile="trainer/Dockerfile",
    sources={
        "images/trainer/made_images.py": "made_images.py",
        "images/trainer/network_check.py": "network_check.py",
        "trainer": "trainer",
    },
    data=frozenset({"digits", "sotu", "tiny-imagenet"}),
    is_built_for_clouds=True,
    installs_packages=True,
)
BUILTIN_IMAGES: Mapping[str, BuiltinImage] = {
    "cuda12": replace(TRAINER_IMAGE, arguments={"TORCH": "-cuda12"}),
    "etcd": BuiltinImage(folder="images/etcd", dockerfile="images/etcd/Dockerfile", data=frozenset()),
    "frameworks": replace(TRAINER_IMAGE, arguments={"FRAMEWORKS": "1"}),
    "horovod": BuiltinImage(
        folder="images/horovod",
        dockerfile="images/horovod/Dockerfile",
        sources={"images/horovod/recipes": "recipes"},
    ),
    "ray": BuiltinImage(
        folder="images/ray",
        dockerfile="images/ray/Dockerfile",
        sources={"images/ray/recipes": "recipes"},
        trainer_files=("requirements.txt", "requirements-cuda12.txt"),
        installs_packages=True,
    ),
    "stores": BuiltinImage(
        folder="images/stores",
        dockerfile="images/stores/Dockerfile",
        sources={"images/stores/serve.py": "serve.py"},
    ),
    "xla": BuiltinImage(
        folder="trainer",
        dockerfile="trainer/Dockerfile.xla",
        sources={"images/trainer/network_check.py": "network_check.py", "trainer": "trainer"},
        data=frozenset({"digits", "sotu"}),
        is_built_for_clouds=True,
        installs_packages=True,
    ),
}
"""Builtin images by the name in a job's `image`.

- `cuda12`: the trainer with CUDA 12, the default on V100s.
- `etcd`: etcd for rendezvous.
- `frameworks`: the trainer with transformers, accelerate, TRL, DeepSpeed and torchtitan.
- `horovod`: TensorFlow and MXNet with Horovod over OpenMPI.
- `ray`: Ray with the trainer's torch.
- `stores`: an object store for examples.
- `xla`: the trainer with PyTorch/XLA, the default on XLA.
"""

EVERY_IMAGE = frozenset({TRAINER, *BUILTIN_IMAGES})
"""Names of all images that Trainyard builds."""

LAYER_FOLDER = "images/layer"
"""Folder of the Dockerfile and the installer of a job's layer, relative to the project."""
LAYER_FILES = ("Dockerfile", "install.py")
"""Files of LAYER_FOLDER that the build reads."""


@dataclass(frozen=True, kw_only=True)
class JobLayer:
    """Layer of a job on a builtin image: packages of its requirements file, and source files of its project."""

    base: str
    """Name of the builtin image."""
    requirements: str = ""
    """Content of the requirements file; empty without one."""
    files: tuple[tuple[str, str], ...] = ()
    """Source files that are too large for a ConfigMap: the path below the script's folder, and the content."""

    @property
    def digests(self) -> str:
        """Digests of the requirements file and of the source files, joined by `-`. An empty part has no digest."""
        contents = [self.requirements, repr(sorted(self.files)) if self.files else ""]
        return "-".join(hashlib.sha256(content.encode()).hexdigest()[:12] for content in contents if content)

    @property
    def name(self) -> str:
        """Name of the image with the layer. The name changes with the content."""
        return f"{self.base}-with-{self.digests}"


def builtin_image(name: str) -> BuiltinImage:
    """Return the builtin image `name`, or the trainer image."""
    return TRAINER_IMAGE if name == TRAINER else BUILTIN_IMAGES[name]


@dataclass(frozen=True, kw_only=True)
class ImageRef:
    """Image of a job: a builtin image or a reference in a registry."""

    builtin: str = ""
    """Name of a builtin image; empty for a reference."""
    reference: str = ""
    """Reference in a registry; empty for a builtin image."""


def cloud_images(images: frozenset[str]) -> frozenset[str]:
    """Return the images of `images` that the cloud platforms build."""
    return frozenset(name for name in images if name == TRAINER or BUILTIN_IMAGES[name].is_built_for_clouds)
