"""Images built on this machine: base, trainer, builtin and pause images, and jobs' layers.

The tags of trainer images, builtin images and jobs' layers are hashes of their sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from infra.builtin_images import (
    LAYER_FILES,
    LAYER_FOLDER,
    LOCAL_PREFIX,
    TRAINER,
    TRAINER_IMAGE,
    BuiltinImage,
    JobLayer,
    builtin_image,
)
from infra.local.image_builder import (
    PRIVATE_MOUNTS,
    Build,
    EngineBuilder,
    find_builder,
    layout_folder,
    prune_layout,
)
from infra.local.image_store import Writer, change_store, share_files, stored_references
from infra.local.settings import PAUSE_IMAGE, cache_folder
from infra.make_command import make_command
from infra.project import CHECKOUT

OFFICIAL_BASE = "docker.io/library/python:3.11-slim-bookworm"
REGISTRY = "registry-1.docker.io"
DEBIAN_RELEASE = "bookworm"
DEBIAN_BASE = f"trainyard.local/base:{DEBIAN_RELEASE}-1"
MOUNT_FOLDER = Path("/run/mount")
"""Folder that `mount` creates for its data, and may leave empty."""


def base_image(builder: EngineBuilder, progress: Callable[[str], None]) -> str:
    """Pull or build the base image unless the builder has it. Return its reference."""
    for reference in (OFFICIAL_BASE, DEBIAN_BASE):
        if builder.has(reference):
            return reference
    if _registry_resolves() and builder.pull(OFFICIAL_BASE):
        return OFFICIAL_BASE
    progress(f"cannot pull {OFFICIAL_BASE}: building a Debian base image instead")
    _build_debian(builder)
    return DEBIAN_BASE


def _registry_resolves() -> bool:
    try:
        socket.getaddrinfo(REGISTRY, 443)
    except OSError:
        return False
    return True


@contextmanager
def _remove_new_folder(folder: Path) -> Iterator[None]:
    """Remove the folder afterwards if it is new and empty."""
    existed = folder.exists()
    try:
        yield
    finally:
        if not existed and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _build_debian(builder: EngineBuilder) -> None:
    folder = cache_folder() / "images" / "base"
    if folder.exists():
        shutil.rmtree(folder)
    root = folder / "root"
    root.mkdir(parents=True)
    command = [*PRIVATE_MOUNTS, "debootstrap", "--variant=minbase", DEBIAN_RELEASE, str(root)]
    with _remove_new_folder(MOUNT_FOLDER):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"debootstrap failed:\n{result.stdout[-2000:]}")
    archive = folder / "root.tar"
    subprocess.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), "."], check=True)
    shutil.rmtree(root)
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text('FROM scratch\nADD root.tar /\nCMD ["/bin/bash"]\n', encoding="utf-8")
    builder.build(Build(reference=DEBIAN_BASE, context=folder, dockerfile=dockerfile, arguments={}, mounts={}))
    shutil.rmtree(folder)


TRAINER_FOLDER = CHECKOUT / "trainer"
TRAINER_REPOSITORY = f"{LOCAL_PREFIX}trainer"
KEPT_TRAINER_IMAGES = 3
"""Number of trainer images that the store keeps, including the newest."""
KEPT_BUILTIN_IMAGES = 1
"""Number of versions that the store keeps of each builtin image. Builtin images change rarely."""

Progress = Callable[[str], None]
BuildAndStore = Callable[[EngineBuilder, str, Progress], None]
"""Function that builds an image by its reference and adds it to the image store."""


def digits_folder() -> Path:
    """Return the folder of the handwritten digits, which set-up creates."""
    return cache_folder() / "datasets" / "digits"


def sotu_folder() -> Path:
    """Return the folder of the State of the Union addresses, which set-up creates."""
    return cache_folder() / "datasets" / "sotu"


def write_image_context(sources: Iterable[Path], context: Path) -> None:
    """Replace `context` by the build context of an image, with only the files that its Dockerfile copies.

    Raises RuntimeError if set-up has not run.
    """
    if context.exists():
        shutil.rmtree(context)
    for path in sources:
        target = context / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for folder in (digits_folder(), sotu_folder()):
        if not folder.is_dir():
            raise RuntimeError(
                f"the data {folder.name} for the trainer image is missing; run {make_command('setup', STACK='')}"
            )
        shutil.copytree(folder, context / folder.name)
    make_readable(context)


def make_readable(context: Path) -> None:
    """Let every user read the content of a build context: COPY keeps the modes, which depend on the umask.

    The folder itself keeps its mode, so it can hide its content on this machine.
    """
    for path in context.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


def trainer_sources() -> list[Path]:
    """Return the source files of the trainer image in a stable order."""
    return _sources(TRAINER_IMAGE)


def image_reference(image: str | JobLayer) -> str:
    """Return the reference of a builtin image, or of the image with a job's layer, for the current sources.

    The tag contains the digest of the sources. With a layer, it has the digests of the base image and the installer,
    and of the layer's content.
    """
    digest = hashlib.sha256()
    if isinstance(image, JobLayer):
        digest.update(image_reference(image.base).encode())
        for name in LAYER_FILES:
            digest.update((LAYER_SOURCES / name).read_bytes())
        return f"{LAYER_REPOSITORY}:{image.base}-{digest.hexdigest()[:16]}-{image.digests}"
    for path in _sources(builtin_image(image)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(CHECKOUT)} {len(content)}\n".encode())
        digest.update(content)
    return f"{LOCAL_PREFIX}{image}:{digest.hexdigest()[:16]}"


def _sources(image: BuiltinImage) -> list[Path]:
    paths = [CHECKOUT / each for each in (image.folder, *image.sources)]
    files = {file for path in paths for file in (path, *path.rglob("*")) if file.is_file()}
    files = {file for file in files if "__pycache__" not in file.parts and not file.name.endswith((".pyc", ".in"))}
    return sorted({*files, *(TRAINER_FOLDER / each for each in ("uv.txt", *image.trainer_files))})


def ensure_stored(
    reference: str,
    progress: Progress,
    unpacked_chains: Callable[[], Set[str]] = frozenset,
    build: BuildAndStore | None = None,
) -> Writer:
    """Build `reference` unless the image store and the builder have it. Return a function that writes its archive.

    `build` builds and stores the image. Without `build`, the image is the pause image or a builtin image.
    New nodes start with the large layers of the stored images, so an archive omits these layers. A node that started
    before the image was stored may lack them, and gets an archive with every layer. `unpacked_chains` returns the chain
    ids of the layers that the node has.
    """
    builder = find_builder()
    images = cache_folder() / "images"
    images.mkdir(parents=True, exist_ok=True)
    with (images / "lock").open("w", encoding="ascii") as lock:
        # With the lock, two stacks that need the same image build it only once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The builder writes the archives. It may lack a stored image that the user deleted or another builder built.
        if reference not in stored_references() or not builder.has(reference):
            (build or _build)(builder, reference, progress)

    def write(target: IO[bytes]) -> None:
        if builder.omitted_chains(reference) <= unpacked_chains():
            builder.write_archive(reference, target)
        else:
            builder.write_complete_archive(reference, target)

    return write


def _build(builder: EngineBuilder, reference: str, progress: Progress) -> None:
    if reference == PAUSE_IMAGE:
        _build_pause(builder)
        change_store(reference, lambda target: builder.write_archive(reference, target))
    else:
        build_from_base(builder, reference, progress)


def _build_pause(builder: EngineBuilder) -> None:
    program = cache_folder() / "bin" / "pause" / "pause"
    if not program.is_file():
        raise RuntimeError(f"the pause program is missing; run {make_command('setup', STACK='')}")
    context = cache_folder() / "images" / "pause"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, context / "pause")
    make_readable(context)
    dockerfile = CHECKOUT / "setup" / "go" / "pause" / "Dockerfile"
    builder.build(Build(reference=PAUSE_IMAGE, context=context, dockerfile=dockerfile, arguments={}, mounts={}))
    shutil.rmtree(context)


def build_from_base(builder: EngineBuilder, reference: str, progress: Progress) -> None:
    """Build and store the trainer image or another builtin image. Remove old images of the same repository."""
    name = reference.partition(":")[0].removeprefix(LOCAL_PREFIX)
    image = builtin_image(name)
    if reference != image_reference(name):
        raise RuntimeError(f"image {reference}: the sources changed during the update; run {make_command('up')} again")
    base = base_image(builder, progress)
    progress(f"building {reference}")
    context = cache_folder() / "images" / "context"
    write_image_context(_sources(image), context)
    arguments = {"BASE_IMAGE": base, **image.arguments}
    dockerfile = CHECKOUT / image.dockerfile
    builder.build(
        Build(reference=reference, context=context, dockerfile=dockerfile, arguments=arguments, mounts=build_mounts())
    )
    shutil.rmtree(context)
    store_built(builder, reference, progress, kept=KEPT_TRAINER_IMAGES if name == TRAINER else KEPT_BUILTIN_IMAGES)


def store_built(builder: EngineBuilder, reference: str, progress: Progress, *, kept: int) -> None:
    """Add a built image to the image store. Keep the `kept` newest images of its repository."""
    repository = reference.partition(":")[0]
    progress(f"storing {reference}")
    others = [stored for stored in stored_references() if stored != reference]
    prune_layout(layout_folder(), others)
    old = [stored for stored in others if stored.startswith(f"{repository}:")]
    stale = old[: max(0, len(old) - kept + 1)]
    change_store(reference, lambda target: builder.write_archive(reference, target), remove=stale)
    if large := builder.forget_large_layers(reference):
        change_store(reference, None, forget=large)
    if builder.layers_folder:
        share_files(builder.layers_folder)
    forget_stale(builder, repository)


def forget_stale(builder: EngineBuilder, repository: str) -> None:
    """Remove from the builder the images of `repository` that are not in the store."""
    stored = stored_references()
    prefix = f"{repository}:"
    if stale := [image for image in builder.images() if image.startswith(prefix) and image not in stored]:
        builder.remove(stale)


def packages_folder() -> Path:
    """Return the folder of this machine's package cache."""
    return Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")


def build_mounts() -> dict[Path, str]:
    """Return the mounts of this machine's package cache and certificates for build steps."""
    packages = packages_folder()
    packages.mkdir(parents=True, exist_ok=True)
    mounts = {packages: "/uv-cache"}
    certificates = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    if Path(certificates).is_file():
        mounts[Path(certificates)] = "/certs/ca.crt"
    return mounts


LAYER_SOURCES = CHECKOUT / LAYER_FOLDER
LAYER_REPOSITORY = f"{LOCAL_PREFIX}layer"
KEPT_LAYER_IMAGES = 4
"""Number of images with a job's layer that the store keeps, including the newest."""
KEPT_LAYER_SECONDS = 86_400
"""Seconds to keep a layer's source files after their last use."""
FILES_FOLDER = "project"
"""Folder of the source files in the build context."""
_EXPLANATION = re.compile(r"^(?:#\d+ )?(?:[\d.]+ )?(requirements: .*)$", re.MULTILINE)
"""Line that images/layer/install.py prints about a failure. BuildKit puts its step and seconds in front."""

_UV_PREAMBLE = re.compile(r"(?<=uv says: )(Using Python \S+ environment at: \S+ )?(error: )?")
"""Beginning of uv's output, before the reason of a failure."""


class LayerError(RuntimeError):
    """Error for a job's packages that cannot be installed into the image. The message is one sentence for the user."""


def build_layer(layer: JobLayer, builder: EngineBuilder, reference: str, progress: Progress) -> None:
    """Build and store the image of a layer. Raises LayerError if the packages cannot be installed."""
    if reference != image_reference(layer):
        raise RuntimeError(f"image {reference}: the sources changed during the update; run {make_command('up')} again")
    base = image_reference(layer.base)
    if not builder.has(base):
        build_from_base(builder, base, progress)
    contents = [
        *(["the packages of `requirements`"] if layer.requirements else []),
        *(["the script's files"] if layer.files else []),
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
    store_built(builder, reference, progress, kept=KEPT_LAYER_IMAGES)


def explanation(output: str) -> str:
    """Return the line of a build's output that explains a failure, or an empty string."""
    lines = _EXPLANATION.findall(output)
    return _UV_PREAMBLE.sub("", str(lines[-1])) if lines else ""


def write_context(layer: JobLayer, folder: Path) -> Path:
    """Replace a folder by the build context of a layer. Return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in LAYER_FILES:
        shutil.copyfile(LAYER_SOURCES / name, folder / name)
    (folder / "requirements.txt").write_text(layer.requirements, encoding="utf-8")
    _write_files(layer.files, folder / FILES_FOLDER)
    make_readable(folder)
    return folder


def _write_files(files: Iterable[tuple[str, str]], folder: Path) -> None:
    folder.mkdir()
    for path, text in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="")


def layer_inputs(layer: JobLayer) -> dict[str, str]:
    """Return a layer as inputs of a resource. Write its source files to a folder: they are too large for the state."""
    inputs = {"base": layer.base, "requirements": layer.requirements}
    if not layer.files:
        return inputs
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
        # Another program may remove this folder at the same time.
        with suppress(FileNotFoundError):
            if other.stat().st_mtime < time.time() - KEPT_LAYER_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    return {**inputs, "files": str(folder)}


def layer_of_inputs(inputs: Mapping[str, str]) -> JobLayer:
    """Return the layer that a resource's inputs describe."""
    folder = Path(inputs["files"]) if "files" in inputs else None
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
    files = tuple((str(path.relative_to(folder)), path.read_bytes().decode()) for path in paths if folder)
    return JobLayer(base=inputs["base"], requirements=inputs["requirements"], files=files)
