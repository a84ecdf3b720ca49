"""Images with a job's packages and source files, built on this machine over a builtin image."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from infra.image.builtin_images import LAYER_FILES, LAYER_FOLDER, LOCAL_PREFIX, TRAINER, JobLayer
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

SOURCES = Path(__file__).resolve().parents[2] / LAYER_FOLDER
REPOSITORY = f"{LOCAL_PREFIX}layer"
KEPT_IMAGES = 4
"""Number of these images that the store keeps, including the newest."""
KEPT_SECONDS = 86_400
"""Seconds that the source files of a layer are kept after the last program that used them."""
FILES_FOLDER = "project"
"""Folder of the source files in the build context."""
_EXPLANATION = re.compile(r"^(?:#\d+ )?(?:[\d.]+ )?(requirements: .*)$", re.MULTILINE)
"""Line that explains a failed build (images/layer/install.py), after BuildKit's step and seconds."""

_UV_PREAMBLE = re.compile(r"(?<=it says: )(Using Python \S+ environment at: \S+ )?(error: )?")
"""Beginning of uv's output before the reason."""


class LayerError(RuntimeError):
    """The packages of a job do not fit its image; the message is one sentence for its user."""


def base_reference(layer: JobLayer) -> str:
    """Return the reference of the builtin image below the layer."""
    return trainer_image_reference() if layer.base == TRAINER else builtin_image_reference(layer.base)


def layer_reference(layer: JobLayer) -> str:
    """Return the reference of the image with the layer, with the digests of its content in its tag.

    It also changes with the image below and with the installer.
    """
    digest = hashlib.sha256(base_reference(layer).encode())
    for name in LAYER_FILES:
        digest.update((SOURCES / name).read_bytes())
    return f"{REPOSITORY}:{layer.base}-{digest.hexdigest()[:16]}-{layer.digests}"


def build_layer(layer: JobLayer, builder: Builder, reference: str, progress: Progress) -> None:
    """Build and store the image of a layer. Raise LayerError if the packages do not fit."""
    if reference != layer_reference(layer):
        raise RuntimeError(f"image {reference}: the sources changed during the update; run `pulumi up` again")
    base = base_reference(layer)
    if not builder.has(base):
        build_from_base(builder, base, progress)
    contents = [
        *(["the packages of `requirements`"] if layer.requirements else []),
        *(["files"] if layer.files else []),
    ]
    progress(f"building {reference} with {' and '.join(contents)}")
    context = write_context(layer, cache_folder() / "images" / "layer")
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
        if message := explanation(str(error)):
            raise LayerError(message) from None
        raise
    finally:
        shutil.rmtree(context)
    store_built(builder, reference, progress, kept=KEPT_IMAGES)


def explanation(output: str) -> str:
    """Return the line of a build's output that explains a failure, or an empty text."""
    lines = _EXPLANATION.findall(output)
    return _UV_PREAMBLE.sub("", str(lines[-1])) if lines else ""


def write_context(layer: JobLayer, folder: Path) -> Path:
    """Write the build context of a layer into a folder, which it replaces. Return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in LAYER_FILES:
        shutil.copyfile(SOURCES / name, folder / name)
    (folder / "requirements.txt").write_text(layer.requirements, encoding="utf-8")
    _write_files(layer.files, folder / FILES_FOLDER)
    return folder


def _write_files(files: Iterable[tuple[str, str]], folder: Path) -> None:
    folder.mkdir()
    for path, text in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="")


def layer_inputs(layer: JobLayer) -> dict[str, str]:
    """Return a layer as inputs of a resource. Its source files are too large for the state: they go to a folder."""
    found = {"base": layer.base, "requirements": layer.requirements}
    if not layer.files:
        return found
    folder = cache_folder() / "images" / "projects" / layer.digests
    if folder.exists():
        os.utime(folder)
    else:
        draft = folder.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        _write_files(layer.files, draft)
        draft.rename(folder)
    for other in folder.parent.iterdir():
        # Another program may remove it at the same time.
        with suppress(FileNotFoundError):
            if other.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    return {**found, "files": str(folder)}


def layer_of_inputs(inputs: Mapping[str, str]) -> JobLayer:
    """Return the layer of a resource's inputs."""
    folder = Path(inputs["files"]) if "files" in inputs else None
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
    files = tuple((str(path.relative_to(folder)), path.read_bytes().decode()) for path in paths if folder)
    return JobLayer(base=inputs["base"], requirements=inputs["requirements"], files=files)
