"""Validation of jobs on Trainyard's images: software and files that an image lacks. Pure.

The contents of other images are unknown.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from infra.image.builtin_images import OWN_IMAGES, TRAINER, WORK_FOLDER
from settings.problem import UNDEFINED, Problem
from workloads.command import uses_torchrun
from workloads.kinds import KINDS
from workloads.kinds.mpi_job import OPEN_MPI
from workloads.kinds.mx_job import MXNET
from workloads.kinds.ray_job import RAY
from workloads.pod_folders import BUCKET_PATH, is_below
from workloads.spec import CUDA_12_IMAGE, XLA_IMAGE, JobSpec
from workloads.trainer_flags import value_of
from workloads.user_script import is_here, remedy
from workloads.validation.folders import written
from workloads.validation.image_files import PACKAGE_FOLDERS, PROJECT, data_folders, in_image, python_files

PYTHON, TORCH, RECIPES, XLA = "Python", "torch", "the trainer", "PyTorch/XLA"
SOFTWARE = {
    **{PYTHON: "python", TORCH: "torch", RECIPES: "trainer", XLA: "xla"},
    **{OPEN_MPI: "open_mpi", MXNET: "mxnet", RAY: "ray"},
}
"""Software -> its name in codes."""
CONTENTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        TRAINER: frozenset({PYTHON, TORCH, RECIPES}),
        CUDA_12_IMAGE: frozenset({PYTHON, TORCH, RECIPES}),
        "etcd": frozenset(),
        "horovod": frozenset({PYTHON, OPEN_MPI, MXNET}),
        "ray": frozenset({PYTHON, TORCH, RAY}),
        "stores": frozenset({PYTHON}),
        XLA_IMAGE: frozenset({PYTHON, TORCH, RECIPES, XLA}),
    }
)
"""Image -> its software, as far as jobs can require it."""


@dataclass(frozen=True, kw_only=True)
class ImageOffer:
    """Sources of a platform's images."""

    builds: frozenset[str]
    """Trainyard's images that the platform builds for the jobs that need them."""
    pulls: bool = True
    """True if its nodes can pull from a registry."""


def image_conflicts(spec: JobSpec, offer: ImageOffer) -> Iterator[Problem]:
    """Yield the reason why a job's image is not available or cannot run the job, or the files that it lacks."""
    if spec.image == TRAINER and TRAINER in offer.builds:
        yield Problem("job.image.is_default", ("image",), "is what a job runs that names none; remove it", spec.image)
        return
    name = spec.image_name or TRAINER
    if name == CUDA_12_IMAGE and spec.image is None and name not in offer.builds:
        # The user may have built the platform's image for these GPUs.
        name = TRAINER
    if name not in CONTENTS:
        return
    needs = _needs(spec)
    if lacking := [thing for thing in needs if thing not in CONTENTS[name]]:
        whose = "" if spec.image else f"is missing: {_called(name)} "
        what = f"{whose}lacks {lacking[0]}, which {needs[lacking[0]]} needs"
        yield Problem(
            f"job.image.lacks_{SOFTWARE[lacking[0]]}",
            ("image",),
            f"{what}; {_remedy(spec, needs, offer)}",
            spec.image or UNDEFINED,
        )
    elif name not in offer.builds and name != TRAINER:
        what = (
            "is not built on this platform"
            if spec.image
            else "is missing: the platform's image is the trainer's without XLA"
        )
        yield Problem("job.image.not_built", ("image",), f"{what}; {_pushed(name)}", spec.image or UNDEFINED)
    elif name in offer.builds and not spec.interactive:
        yield from _absent(spec, name)


def _absent(spec: JobSpec, name: str) -> Iterator[Problem]:
    """Yield the files that one of Trainyard's images lacks. The user of an interactive job may add files."""
    script = posixpath.normpath(in_image(spec.script or ""))
    known = python_files(name)
    # `unreadable_scripts` reports files of the checkout, with their path there.
    there = script in known or is_below(script, BUCKET_PATH, *PACKAGE_FOLDERS)
    if spec.script and not is_here(spec.script) and not there and not remedy(spec.script, PROJECT):
        meant = sorted(known) if spec.script.startswith(f"{WORK_FOLDER}/") else []
        near = get_close_matches(script, meant, n=1, cutoff=0.85)
        here = "write ./ and its path for a file of this checkout, or `image:` with one that has it"
        yield Problem(
            "job.script.not_in_image",
            ("script",),
            f"is not a file of {_called(name)}; {f'write {near[0]}' if near else here}",
            spec.script,
        )
    data = value_of(spec.recipe, spec.flags, "data_dir") if spec.recipe else None
    folder = posixpath.normpath(in_image(str(data).removeprefix("file://")))
    if data and not _is_url(str(data)) and folder not in data_folders(name) and not is_below(folder, BUCKET_PATH):
        what = (
            "the digits are in the image; remove it"
            if spec.recipe == "digits"
            else "write the URL of a folder in a bucket, s3:// or gs://, a folder of /bucket where the platform mounts "
            "one, or `image:` with one that has it"
        )
        yield Problem(
            "job.data_dir.not_in_image",
            ("flags", written(spec, "data_dir")),
            f"is not a folder of {_called(name)}; {what}",
            data,
        )


def _is_url(text: str) -> bool:
    return "://" in text and not text.startswith("file://")


def _needs(spec: JobSpec) -> dict[str, str]:
    """Return required software -> the setting that requires it."""
    software = KINDS[spec.kind].image_software
    found = {software: f"a job of kind {spec.kind}"} if software else {}
    if spec.on_xla:
        found[XLA] = "a job on XLA"
    if spec.recipe:
        found[RECIPES] = f"recipe {spec.recipe}"
    elif uses_torchrun(spec):
        found[TORCH] = "a script under torchrun"
    else:
        found[PYTHON] = "a script"
    return found


def _called(name: str) -> str:
    return "the trainer's image" if name == TRAINER else f"image {name}"


def _remedy(spec: JobSpec, needs: Mapping[str, str], offer: ImageOffer) -> str:
    able = [name for name, content in CONTENTS.items() if needs.keys() <= content]
    default = XLA_IMAGE if spec.on_xla else TRAINER
    if spec.image and default in able and (default == TRAINER or default in offer.builds):
        return "remove it"
    if here := [name for name in able if name in offer.builds]:
        return f"write `image: {here[0]}`"
    if not offer.pulls:
        return "no image here has all of it; write `kind: indexed-job`, or `image: horovod` and a `script:` for that"
    # Horovod's image supports only CPUs.
    if able and spec.accelerator is None:
        return _pushed(able[0])
    return f"write the reference of an image that has {' and '.join(needs)}"


def _pushed(name: str) -> str:
    return f"build {OWN_IMAGES[name].dockerfile}, push it, write its reference"
