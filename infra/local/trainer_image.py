"""Images of the local cluster: base, job and pause images. The tag of an image is a hash of its sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from infra.image.builtin_images import BUILTIN_IMAGES, LOCAL_PREFIX, TRAINER_IMAGE, BuiltinImage
from infra.local.image_builder import PRIVATE_MOUNTS, Build, Builder, find_builder
from infra.local.image_store import Writer, change_store, stored_references
from infra.local.settings import PAUSE_IMAGE, cache_folder
from infra.make_command import make_command

OFFICIAL_BASE = "docker.io/library/python:3.11-slim-bookworm"
REGISTRY = "registry-1.docker.io"
DEBIAN = "bookworm"
DEBIAN_BASE = f"trainyard.local/base:{DEBIAN}-1"
MOUNT_FOLDER = Path("/run/mount")
"""Folder where `mount` keeps its data about mounts.

`mount` creates the folder even if it writes nothing into it.
"""


def base_image(builder: Builder, progress: Callable[[str], None]) -> str:
    """Pull or build the base image unless the builder has it. Return its reference."""
    for reference in (OFFICIAL_BASE, DEBIAN_BASE):
        if builder.has(reference):
            return reference
    if _registry_resolves() and builder.pull(OFFICIAL_BASE):
        return OFFICIAL_BASE
    progress("the image registry does not answer: building a Debian base image")
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


def _build_debian(builder: Builder) -> None:
    folder = cache_folder() / "images" / "base"
    if folder.exists():
        shutil.rmtree(folder)
    root = folder / "root"
    root.mkdir(parents=True)
    command = [*PRIVATE_MOUNTS, "debootstrap", "--variant=minbase", DEBIAN, str(root)]
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


PROJECT = Path(__file__).resolve().parents[2]
TRAINER = PROJECT / "trainer"
TRAINER_REPOSITORY = f"{LOCAL_PREFIX}trainer"
KEPT_TRAINER_IMAGES = 3
"""Number of trainer images that the store keeps, including the newest."""
KEPT_BUILTIN_IMAGES = 1
"""Number of images that the store keeps of each other builtin image. They change rarely."""

Progress = Callable[[str], None]
BuildAndStore = Callable[[Builder, str, Progress], None]
"""Function that builds an image by its reference and adds it to the image store."""


def digits_folder() -> Path:
    """Return the folder of the handwritten digits, which set-up creates."""
    return cache_folder() / "datasets" / "digits"


def sotu_folder() -> Path:
    """Return the folder of the State of the Union addresses, which set-up creates."""
    return cache_folder() / "datasets" / "sotu"


def copy_data(context: Path) -> None:
    """Copy the data of the images to a build context. Raises RuntimeError if set-up has not run."""
    for folder in (digits_folder(), sotu_folder()):
        if not folder.is_dir():
            raise RuntimeError(
                f"the data {folder.name} for the trainer image is missing; run {make_command('setup', STACK='')}"
            )
        shutil.copytree(folder, context / folder.name)


def trainer_sources() -> list[Path]:
    """Return the source files of the trainer image in a stable order."""
    return _sources(TRAINER_IMAGE)


def trainer_image_reference() -> str:
    """Return the reference of the trainer image for the current sources. Equal sources have equal references."""
    return _reference(TRAINER_REPOSITORY, trainer_sources())


def builtin_image_reference(name: str) -> str:
    """Return the reference of the builtin image `name` for its current sources."""
    return _reference(f"{LOCAL_PREFIX}{name}", _sources(BUILTIN_IMAGES[name]))


def _sources(image: BuiltinImage) -> list[Path]:
    paths = [PROJECT / each for each in (image.folder, *image.sources)]
    files = {file for path in paths for file in (path, *path.rglob("*")) if file.is_file()}
    files = {file for file in files if "__pycache__" not in file.parts and not file.name.endswith((".pyc", ".in"))}
    return sorted({*files, *(TRAINER / each for each in ("uv.txt", *image.trainer_files))})


def _reference(repository: str, sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PROJECT)} {len(content)}\n".encode())
        digest.update(content)
    return f"{repository}:{digest.hexdigest()[:16]}"


def ensure_stored(
    reference: str,
    progress: Progress,
    unpacked_chains: Callable[[], Set[str]] = frozenset,
    build: BuildAndStore | None = None,
) -> Writer:
    """Build `reference` unless the image store has it. Return a function that writes its archive.

    `build` builds and stores it; without it, the image is the pause image or a builtin image. `unpacked_chains` returns
    the layers that the node has unpacked. A node that is older than the image in the store lacks layers that archives
    normally omit. It gets an archive with every layer.
    """
    builder = find_builder()
    images = cache_folder() / "images"
    images.mkdir(parents=True, exist_ok=True)
    with (images / "lock").open("w", encoding="ascii") as lock:
        # With the lock, two stacks that need the same image build it only once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if reference not in stored_references():
            (build or _build)(builder, reference, progress)

    def write(target: IO[bytes]) -> None:
        if builder.omitted_chains(reference) <= unpacked_chains():
            builder.write_archive(reference, target)
        else:
            builder.write_complete_archive(reference, target)

    return write


def _build(builder: Builder, reference: str, progress: Progress) -> None:
    if reference == PAUSE_IMAGE:
        _build_pause(builder)
        change_store(reference, lambda target: builder.write_archive(reference, target))
    else:
        build_from_base(builder, reference, progress)


def _build_pause(builder: Builder) -> None:
    program = cache_folder() / "bin" / "pause" / "pause"
    if not program.is_file():
        raise RuntimeError(f"the pause program is missing; run {make_command('setup', STACK='')}")
    context = cache_folder() / "images" / "pause"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, context / "pause")
    dockerfile = PROJECT / "setup" / "go" / "pause" / "Dockerfile"
    builder.build(Build(reference=PAUSE_IMAGE, context=context, dockerfile=dockerfile, arguments={}, mounts={}))
    shutil.rmtree(context)


def build_from_base(builder: Builder, reference: str, progress: Progress) -> None:
    """Build and store the trainer image or another builtin image. Remove old images of the same repository."""
    repository = reference.partition(":")[0]
    name = {f"{LOCAL_PREFIX}{name}": name for name in BUILTIN_IMAGES}.get(repository)
    sources = _sources(BUILTIN_IMAGES[name] if name else TRAINER_IMAGE)
    dockerfile = PROJECT / BUILTIN_IMAGES[name].dockerfile if name else TRAINER / "Dockerfile"
    if reference != _reference(repository, sources):
        raise RuntimeError(f"image {reference}: the sources changed during the update; run `pulumi up` again")
    base = base_image(builder, progress)
    progress(f"building {reference}")
    context = _context(sources)
    arguments = {"BASE_IMAGE": base, **(BUILTIN_IMAGES[name].arguments if name else {})}
    builder.build(
        Build(reference=reference, context=context, dockerfile=dockerfile, arguments=arguments, mounts=build_mounts())
    )
    shutil.rmtree(context)
    store_built(builder, reference, progress, kept=KEPT_BUILTIN_IMAGES if name else KEPT_TRAINER_IMAGES)


def store_built(builder: Builder, reference: str, progress: Progress, *, kept: int) -> None:
    """Add a built image to the image store. Keep the `kept` newest images of its repository."""
    repository = reference.partition(":")[0]
    progress(f"storing {reference}")
    old = [stored for stored in stored_references() if stored.startswith(f"{repository}:")]
    stale = old[: max(0, len(old) - kept + 1)]
    change_store(reference, lambda target: builder.write_archive(reference, target), remove=stale)
    if large := builder.forget_large_layers(reference):
        change_store(reference, None, forget=large)
    forget_stale(builder, repository)


def forget_stale(builder: Builder, repository: str) -> None:
    """Remove images of `repository` from the builder that the store no longer has."""
    stored = stored_references()
    prefix = f"{repository}:"
    if stale := [image for image in builder.images() if image.startswith(prefix) and image not in stored]:
        builder.remove(stale)


def _context(sources: list[Path]) -> Path:
    """Return a folder with only the files that the Dockerfile copies: the sources and the data."""
    context = cache_folder() / "images" / "context"
    if context.exists():
        shutil.rmtree(context)
    for path in sources:
        target = context / path.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    copy_data(context)
    return context


def build_mounts() -> dict[Path, str]:
    """Return the mounts of this machine's package cache and certificates for build steps."""
    packages = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
    packages.mkdir(parents=True, exist_ok=True)
    mounts = {packages: "/uv-cache"}
    certificates = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    if Path(certificates).is_file():
        mounts[Path(certificates)] = "/certs/ca.crt"
    return mounts
