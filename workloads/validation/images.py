"""Validation of a job's image: report software and files that it lacks, if it is one of Trainyard's images.

The contents of other images are unknown.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath
from types import MappingProxyType

from infra.builtin_images import BUILTIN_IMAGES, TRAINER, TRAINER_IMAGE, WORK_FOLDER, builtin_image
from infra.project import CHECKOUT, project_folder
from settings.problem import UNDEFINED, Problem
from workloads.command import BUCKET_PATH, is_below, uses_torchrun
from workloads.kinds import KINDS
from workloads.kinds.mpi_job import OPEN_MPI
from workloads.kinds.ray_job import RAY
from workloads.kinds.training_operator import MXNET
from workloads.language_model import LANGUAGE
from workloads.spec import CUDA_12_IMAGE, XLA_IMAGE, JobSpec
from workloads.user_files import is_in_project, project_path
from workloads.validation.flags import settings_key

PATH_FLAGS = ("data_dir", "init_from", "tokenizer")
"""Flags whose value is a path or URL."""
TOKENIZER_NAMES = ("bytes", "bpe")
"""Values of the flag `tokenizer` that are not paths."""
PACKAGE_FOLDERS = ("/usr", f"{WORK_FOLDER}/venv")
"""Folders of packages in an image. This module does not know their files."""


def absolute_path(path: str) -> str:
    """Return a path relative to the image's working directory as an absolute path."""
    return str(WORK_FOLDER / path)


@functools.cache
def python_files(image: str) -> frozenset[str]:
    """Return the paths of the Python files in an image, without files of packages."""
    paths = set()
    for source, target in BUILTIN_IMAGES.get(image, TRAINER_IMAGE).sources.items():
        source_path = CHECKOUT / source
        files = [source_path] if source_path.suffix == ".py" else source_path.rglob("*.py")
        paths |= {absolute_path(str(PurePosixPath(target) / file.relative_to(source_path))) for file in files}
    return frozenset(paths)


def data_folders(image: str) -> frozenset[str]:
    """Return the paths of the folders with data in an image."""
    return frozenset(map(absolute_path, BUILTIN_IMAGES.get(image, TRAINER_IMAGE).data))


TEXT_FOLDER = absolute_path("sotu")
"""Folder with texts in the images. No other folder has texts."""
PYTHON, TORCH, THE_TRAINER, XLA = "Python", "torch", "the trainer", "PyTorch/XLA"
SOFTWARE_CODES = {
    **{PYTHON: "python", TORCH: "torch", THE_TRAINER: "trainer", XLA: "xla"},
    **{OPEN_MPI: "open_mpi", MXNET: "mxnet", RAY: "ray"},
}
"""Software -> its name in the codes of problems."""
IMAGE_SOFTWARE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        TRAINER: frozenset({PYTHON, TORCH, THE_TRAINER}),
        CUDA_12_IMAGE: frozenset({PYTHON, TORCH, THE_TRAINER}),
        "etcd": frozenset(),
        "frameworks": frozenset({PYTHON, TORCH, THE_TRAINER}),
        "horovod": frozenset({PYTHON, OPEN_MPI, MXNET}),
        "ray": frozenset({PYTHON, TORCH, RAY}),
        "stores": frozenset({PYTHON}),
        XLA_IMAGE: frozenset({PYTHON, TORCH, THE_TRAINER, XLA}),
    }
)
"""Image -> the software in it that a job can require."""


@dataclass(frozen=True, kw_only=True)
class ImageSources:
    """Sources of a platform's images."""

    builds: frozenset[str]
    """Trainyard's images that the platform builds for the jobs that need them."""
    pulls: bool = True
    """True if its nodes can pull from a registry."""


def image_conflicts(spec: JobSpec, sources: ImageSources) -> Iterator[Problem]:
    """Yield a problem if a job's image does not exist or lacks software, else one for each file that it lacks."""
    if spec.image == TRAINER and TRAINER in sources.builds:
        yield Problem("job.image.is_default", ("image",), "is the default; remove this key", spec.image)
        return
    name = spec.image_ref.builtin
    if not name:
        return
    if name == CUDA_12_IMAGE and spec.image is None and name not in sources.builds:
        # The platform's image may be the user's, built for GPUs that need CUDA 12. Check it as the trainer's image.
        name = TRAINER
    required_by = _required_software(spec)
    if missing := [software for software in required_by if software not in IMAGE_SOFTWARE[name]]:
        software = missing[0]
        subject = "" if spec.image else f"is missing: {_description(name)} "
        message = f"{subject}lacks {software}, which {required_by[software]} needs"
        message = f"{message}; {_remedy(spec, required_by, sources)}"
        yield Problem(f"job.image.lacks_{SOFTWARE_CODES[software]}", ("image",), message, spec.image or UNDEFINED)
    elif name not in sources.builds and name != TRAINER:
        message = (
            "is not built on this platform"
            if spec.image
            else "is missing: the platform's image has no PyTorch/XLA, which this job needs"
        )
        yield Problem("job.image.not_built", ("image",), f"{message}; {_build_and_push(name)}", spec.image or UNDEFINED)
    elif name in sources.builds and not spec.interactive:
        # The user of an interactive job may add files.
        yield from _missing_files(spec, name, pulls=sources.pulls)


def package_conflicts(spec: JobSpec, sources: ImageSources) -> Iterator[Problem]:
    """Yield a problem if Trainyard cannot add the packages of `requirements` to the job's image."""
    if spec.requirements is None:
        return
    name = spec.image_ref.builtin
    if not name:
        message = f"adds packages only to Trainyard's images; install them in {spec.image} and remove this key"
        yield Problem("job.requirements.with_user_image", ("requirements",), message, spec.requirements)
    elif not builtin_image(name).installs_packages:
        names = [each for each in (TRAINER, *BUILTIN_IMAGES) if builtin_image(each).installs_packages]
        message = (
            f"{_description(name)} cannot install packages; images that can are {', '.join(names)}; remove this key"
        )
        yield Problem("job.requirements.no_installer", ("requirements",), message, spec.requirements)
    elif name not in sources.builds:
        message = (
            "needs an image build, which this platform does not do; build an image with the packages, push it, and "
            "write its reference as `image`"
        )
        yield Problem("job.requirements.not_built", ("requirements",), message, spec.requirements)


def _missing_files(spec: JobSpec, name: str, *, pulls: bool) -> Iterator[Problem]:
    """Yield a problem for each file that a builtin image lacks, for a job that is not interactive."""
    script = posixpath.normpath(absolute_path(spec.script or ""))
    image_files = python_files(name)
    exists = script in image_files or is_below(script, BUCKET_PATH, *PACKAGE_FOLDERS)
    # `unreadable_scripts` in stack/validation.py reports files of the project.
    if (
        spec.script
        and not is_in_project(spec.script)
        and not exists
        and not project_path(spec.script, project_folder())
    ):
        candidates = sorted(image_files) if spec.script.startswith(f"{WORK_FOLDER}/") else []
        similar = get_close_matches(script, candidates, n=1, cutoff=0.85)
        remedy = (
            f"write {similar[0]}"
            if similar
            else "write ./ and the path of a file in the stack's folder"
            + (", or `image:` with an image that has it" if pulls else "")
        )
        message = f"is not a file of {_description(name)}; {remedy}"
        yield Problem("job.script.not_in_image", ("script",), message, spec.script)
    for flag in PATH_FLAGS if spec.recipe else ():
        path = spec.flag(flag)
        folder = posixpath.normpath(absolute_path(str(path).removeprefix("file://")))
        is_url = "://" in str(path) and not str(path).startswith("file://")
        if not path or path in TOKENIZER_NAMES or is_url or is_below(folder, BUCKET_PATH):
            continue
        if flag == "data_dir" and folder in data_folders(name):
            if spec.recipe == LANGUAGE and folder != TEXT_FOLDER:
                message = f"has no texts; set a folder with train/ and test/, or remove this flag to use {TEXT_FOLDER}"
                yield Problem("job.data_dir.no_text", ("flags", settings_key(spec, flag)), message, path)
            continue
        if spec.recipe == "digits":
            remedy = "the digits are in the image; remove this flag"
        elif pulls:
            remedy = (
                "copy it into a bucket and write its URL (s3:// or gs://), or a path below /bucket if the platform "
                "mounts it, or write `image:` with an image that has it"
            )
        else:
            remedy = (
                f"copy it into the folder in the stack's output `bucket_url`, and write its path below {BUCKET_PATH}"
            )
            if flag == "data_dir":
                remedy += ", or set the job's `data` to a folder of this machine"
        if flag != "data_dir":
            remedy += "; the trainer downloads nothing from Hugging Face's Hub"
        message = f"is not in {_description(name)}; {remedy}"
        yield Problem(f"job.{flag}.not_in_image", ("flags", settings_key(spec, flag)), message, path)


def _required_software(spec: JobSpec) -> dict[str, str]:
    """Return the software that a job requires -> the reason, such as "recipe digits"."""
    kind_software = KINDS[spec.kind].image_software
    required_by = {kind_software: f"a job of kind {spec.kind}"} if kind_software else {}
    if spec.on_xla:
        required_by[XLA] = "a job on XLA"
    if spec.recipe:
        required_by[THE_TRAINER] = f"recipe {spec.recipe}"
    elif uses_torchrun(spec):
        required_by[TORCH] = "a script under torchrun"
    else:
        required_by[PYTHON] = "a script"
    return required_by


def _description(name: str) -> str:
    return "the trainer's image" if name == TRAINER else f"image {name}"


def _remedy(spec: JobSpec, required: Mapping[str, str], sources: ImageSources) -> str:
    """Return the remedy for a job whose image lacks some of the `required` software."""
    suitable = [name for name, software in IMAGE_SOFTWARE.items() if required.keys() <= software]
    default = XLA_IMAGE if spec.on_xla else TRAINER
    if spec.image and default in suitable and (default == TRAINER or default in sources.builds):
        return "remove this key"
    if built := [name for name in suitable if name in sources.builds]:
        return f"write `image: {built[0]}`"
    if not sources.pulls:
        remedy = "write `kind: indexed-job`, or `image: horovod` with a `script:`"
        return f"no image on this platform has all required software; {remedy}"
    # Horovod's image supports only CPUs.
    if suitable and spec.accelerator is None:
        return _build_and_push(suitable[0])
    return f"write the reference of an image that has {' and '.join(required)}"


def _build_and_push(name: str) -> str:
    return f"build {BUILTIN_IMAGES[name].dockerfile}, push the image and write its reference"
