"""Images of the local cluster, built here and tagged with a hash of their sources: job images and the pause image."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Set
from pathlib import Path
from typing import IO

from infra.image.builtin_images import BUILT_HERE, OWN_IMAGES
from infra.local.image_builder import Build, Builder, find_builder
from infra.local.image_store import Writer, change_store, stored_references
from infra.local.settings import PAUSE_IMAGE, cache_folder

PROJECT = Path(__file__).resolve().parents[2]
TRAINER = PROJECT / "trainer"
NAME = f"{BUILT_HERE}trainer"
KEPT = 3
"""Number of trainer images that the store keeps, including the newest."""
KEPT_OWN = 1
"""Number of images that the store keeps of each other builtin image. They change rarely."""

Progress = Callable[[str], None]


def digits_folder() -> Path:
    """Return the folder of the handwritten digits, which set-up creates."""
    return cache_folder() / "datasets" / "digits"


def trainer_sources() -> list[Path]:
    """Return the source files of the trainer image in a stable order."""
    return _files(TRAINER)


def trainer_image_reference() -> str:
    """Return the name of the trainer image for the current sources. Equal sources have equal names."""
    return _reference(NAME, trainer_sources())


def own_image_reference(name: str) -> str:
    """Return the name of the builtin image `name` for its current sources."""
    return _reference(f"{BUILT_HERE}{name}", _own_sources(name))


def _own_sources(name: str) -> list[Path]:
    own = OWN_IMAGES[name]
    return sorted({*_files(PROJECT / own.folder), *(TRAINER / each for each in ("uv.txt", *own.trainer_files))})


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith((".pyc", ".in"))
    )


def _reference(name: str, sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PROJECT)} {len(content)}\n".encode())
        digest.update(content)
    return f"{name}:{digest.hexdigest()[:16]}"


def ensure_stored(reference: str, progress: Progress, present: Callable[[], Set[str]] = frozenset) -> Writer:
    """Build `reference` unless the image store has it. Return a function that writes its archive.

    `present` returns the layers that the node has unpacked. A node that was cloned before the store had the image lacks
    layers that archives normally omit. It gets an archive with every layer.
    """
    builder = find_builder()
    images = cache_folder() / "images"
    images.mkdir(parents=True, exist_ok=True)
    with (images / "lock").open("w", encoding="ascii") as lock:
        # The lock makes two stacks that need the same image build it once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if reference not in stored_references():
            if reference == PAUSE_IMAGE:
                _build_pause(builder)
                change_store(reference, lambda target: builder.write_archive(reference, target))
            else:
                _build_from_base(builder, reference, progress)

    def write(target: IO[bytes]) -> None:
        if builder.chains_left_out(reference) <= present():
            builder.write_archive(reference, target)
        else:
            builder.write_whole_archive(reference, target)

    return write


def _build_pause(builder: Builder) -> None:
    program = cache_folder() / "bin" / "pause" / "pause"
    if not program.is_file():
        raise RuntimeError("the pause program is not built: run `make setup`")
    context = cache_folder() / "images" / "pause"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, context / "pause")
    dockerfile = PROJECT / "setup" / "go" / "pause" / "Dockerfile"
    builder.build(Build(reference=PAUSE_IMAGE, context=context, dockerfile=dockerfile, arguments={}, mounts={}))
    shutil.rmtree(context)


def _build_from_base(builder: Builder, reference: str, progress: Progress) -> None:
    """Build the trainer image or another builtin image. Keep it and the last few of the same repository."""
    from infra.local.base_image import base_image

    repository = reference.partition(":")[0]
    own = {f"{BUILT_HERE}{name}": name for name in OWN_IMAGES}.get(repository)
    sources = _own_sources(own) if own else trainer_sources()
    dockerfile = PROJECT / OWN_IMAGES[own].dockerfile if own else TRAINER / "Dockerfile"
    if reference != _reference(repository, sources):
        raise RuntimeError(f"image {reference}: its sources have changed since it was planned; run `pulumi up` again")
    base = base_image(builder, progress)
    progress(f"building {reference}")
    context = _context(sources)
    arguments = {"BASE_IMAGE": base, **(OWN_IMAGES[own].arguments if own else {})}
    builder.build(
        Build(reference=reference, context=context, dockerfile=dockerfile, arguments=arguments, mounts=_build_mounts())
    )
    shutil.rmtree(context)
    progress(f"storing {reference}")
    old = [each for each in stored_references() if each.startswith(f"{repository}:")]
    stale = old[: max(0, len(old) - (KEPT_OWN if own else KEPT) + 1)]
    change_store(reference, lambda target: builder.write_archive(reference, target), remove=stale)
    if large := builder.forget_large_layers(reference):
        change_store(reference, None, forget=large)
    forget_stale(builder, repository)


def forget_stale(builder: Builder, repository: str) -> None:
    """Free the builder's space of images of `repository` that the store no longer has."""
    kept = stored_references()
    if stale := [each for each in builder.images() if each.startswith(f"{repository}:") and each not in kept]:
        builder.remove(stale)


def _context(sources: list[Path]) -> Path:
    """Return a folder with only the files that the Dockerfile copies: the sources and the digits."""
    context = cache_folder() / "images" / "context"
    if context.exists():
        shutil.rmtree(context)
    for path in sources:
        target = context / path.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if not digits_folder().is_dir():
        raise RuntimeError("the digits are missing: run `make setup`")
    shutil.copytree(digits_folder(), context / "digits")
    return context


def _build_mounts() -> dict[Path, str]:
    """Return this machine's package cache and certificates, which build steps can see but no layer contains."""
    packages = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
    packages.mkdir(parents=True, exist_ok=True)
    mounts = {packages: "/uv-cache"}
    certificates = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    if Path(certificates).is_file():
        mounts[Path(certificates)] = "/certs/ca.crt"
    return mounts
