"""Images with the packages of a job's `requirements`, built on this machine over a builtin image."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from infra.image.builtin_images import LOCAL_PREFIX, PACKAGES_FILES, PACKAGES_FOLDER, TRAINER, PackageLayer
from infra.local.image_builder import Build, Builder
from infra.local.settings import cache_folder
from infra.local.trainer_image import (
    Progress,
    build_from_base,
    build_mounts,
    builtin_image_reference,
    store_built,
    trainer_image_reference,
)

SOURCES = Path(__file__).resolve().parents[2] / PACKAGES_FOLDER
REPOSITORY = f"{LOCAL_PREFIX}packages"
KEPT_IMAGES = 4
"""Number of images with packages that the store keeps, including the newest."""
_EXPLANATION = re.compile(r"^(?:#\d+ )?(?:[\d.]+ )?(requirements: .*)$", re.MULTILINE)
"""Line that explains a failed build (images/packages/install.py), after BuildKit's step and seconds."""


def base_reference(layer: PackageLayer) -> str:
    """Return the reference of the builtin image below the packages."""
    return trainer_image_reference() if layer.base == TRAINER else builtin_image_reference(layer.base)


def package_reference(layer: PackageLayer) -> str:
    """Return the reference of the image with the packages, with the file's digest in its tag.

    It also changes with the image below and with the installer.
    """
    digest = hashlib.sha256(base_reference(layer).encode())
    for name in PACKAGES_FILES:
        digest.update((SOURCES / name).read_bytes())
    return f"{REPOSITORY}:{layer.base}-{digest.hexdigest()[:16]}-{layer.digest[:12]}"


def build_packages(layer: PackageLayer, builder: Builder, reference: str, progress: Progress) -> None:
    """Build and store the image of a layer. Raise RuntimeError with one sentence if the packages do not fit."""
    if reference != package_reference(layer):
        raise RuntimeError(f"image {reference}: the sources changed during the update; run `pulumi up` again")
    base = base_reference(layer)
    if not builder.has(base):
        build_from_base(builder, base, progress)
    progress(f"building {reference} with the packages of `requirements`")
    context = write_context(layer, cache_folder() / "images" / "packages")
    build = Build(
        reference=reference,
        context=context,
        dockerfile=context / "Dockerfile",
        arguments={"BASE_IMAGE": base},
        mounts=build_mounts(),
    )
    try:
        builder.build(build)
    except RuntimeError as error:
        raise RuntimeError(explanation(str(error)) or str(error)) from None
    finally:
        shutil.rmtree(context)
    store_built(builder, reference, progress, kept=KEPT_IMAGES)


def explanation(output: str) -> str:
    """Return the line of a build's output that explains a failure, or an empty text."""
    lines = _EXPLANATION.findall(output)
    return str(lines[-1]) if lines else ""


def write_context(layer: PackageLayer, folder: Path) -> Path:
    """Write the build context of a layer into a folder, which it replaces. Return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in PACKAGES_FILES:
        shutil.copyfile(SOURCES / name, folder / name)
    (folder / "requirements.txt").write_text(layer.requirements, encoding="utf-8")
    return folder
