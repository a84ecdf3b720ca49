"""Image builds with docker, podman or buildah, and archives of the built images."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from infra.local import oci_layout
from infra.local.settings import cache_folder

ANSWER_SECONDS = 10
PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private")
"""Command prefix that limits buildah's mounts to the lifetime of its process."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Image build."""

    reference: str
    """Name and tag of the image."""
    context: Path
    """Folder of the files for COPY."""
    dockerfile: Path
    """Path of the Dockerfile."""
    arguments: Mapping[str, str]
    """Build arguments."""
    mounts: Mapping[Path, str]
    """Paths of this machine that RUN steps can see, with their mount points. They never become part of a layer."""


class EngineBuilder:
    """Builder for docker or podman, which accept the same commands."""

    def __init__(self, program: str) -> None:
        self.program = program

    def build(self, build: Build) -> None:
        """Build with the engine. It has its own network and caches, so it ignores `mounts`."""
        arguments = [word for key, value in build.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        _run(
            [self.program, "build", "-t", build.reference, "-f", str(build.dockerfile), *arguments, str(build.context)]
        )

    def has(self, reference: str) -> bool:
        """Return True if the engine holds the image."""
        return _succeeds([self.program, "image", "inspect", reference])

    def pull(self, reference: str) -> bool:
        """Pull the image; return True on success."""
        return _succeeds([self.program, "pull", "-q", reference], seconds=600)

    def images(self) -> list[str]:
        """Return the references of the images that the engine holds."""
        return _references([self.program, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"])

    def remove(self, references: Sequence[str]) -> None:
        """Remove images, and the layers that no other image has."""
        _run([self.program, "image", "rm", *references])

    def write_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive that containerd can import."""
        subprocess.run([self.program, "save", reference], stdout=target, check=True)

    def chains_left_out(self, _reference: str) -> set[str]:
        """Return an empty set: the engine's archives are complete."""
        return set()

    def write_whole_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the same archive as `write_archive`: the engine's archives are complete."""
        self.write_archive(reference, target)

    def forget_large_layers(self, _reference: str) -> list[str]:
        """Return an empty list: the engine keeps its layers."""
        return []


class BuildahBuilder:
    """Builder for buildah, with a storage folder that only Trainyard uses."""

    def __init__(self) -> None:
        images = cache_folder() / "images"
        self.layout = images / "layout"
        storage = ["--root", str(images / "buildah"), "--runroot", str(images / "buildah-run")]
        self.command = [*PRIVATE_MOUNTS, "buildah", "--storage-driver", "overlay", *storage]
        images.mkdir(parents=True, exist_ok=True)

    def build(self, build: Build) -> None:
        """Build with cached layers. Each RUN step runs in a chroot and needs no privileges beyond root."""
        arguments = [word for key, value in build.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        mounts = [word for source, target in build.mounts.items() for word in ("--volume", f"{source}:{target}:rw")]
        # Remove the leftovers of an interrupted build. No other build uses this storage at the same time.
        _run([*self.command, "rm", "--all"])
        words = ["build", "--isolation", "chroot", "--layers", *mounts, *arguments]
        _run([*self.command, *words, "-t", build.reference, "-f", str(build.dockerfile), str(build.context)])

    def has(self, reference: str) -> bool:
        """Return True if buildah holds the image."""
        return _succeeds([*self.command, "inspect", "--type", "image", reference])

    def pull(self, reference: str) -> bool:
        """Pull the image; return True on success."""
        return _succeeds([*self.command, "pull", "--quiet", reference], seconds=600)

    def images(self) -> list[str]:
        """Return the references of the images in the storage."""
        return _references([*self.command, "images", "--format", "{{.Name}}:{{.Tag}}"])

    def remove(self, references: Sequence[str]) -> None:
        """Remove images, and the layers and cached steps that no other image has."""
        _run([*self.command, "rmi", *references])

    def write_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive, without the layers that every node already has."""
        self._lay_out(reference)
        oci_layout.write_archive(self.layout, reference, target)

    def chains_left_out(self, reference: str) -> set[str]:
        """Return the chain ids (containerd's names) of the unpacked layers that the archive omits.

        A node needs these layers before it imports the archive.
        """
        self._lay_out(reference)
        return oci_layout.chains_left_out(self.layout, reference)

    def write_whole_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive with every layer, for a node that is older than the image."""
        with TemporaryDirectory(dir=self.layout.parent) as folder:
            self._push(reference, Path(folder))
            oci_layout.write_archive(Path(folder), reference, target)

    def _lay_out(self, reference: str) -> None:
        if not oci_layout.has(self.layout, reference):
            self._push(reference, self.layout)

    def _push(self, reference: str, layout: Path) -> None:
        compression = ["--compression-format", "zstd", "--compression-level", "1"]
        _run([*self.command, "push", "--quiet", *compression, reference, f"oci:{layout}:{reference}"])

    def forget_large_layers(self, reference: str) -> list[str]:
        """Free the space of layers that the image store has unpacked; return their digests."""
        return oci_layout.empty_large_layers(self.layout, reference)


Builder = EngineBuilder | BuildahBuilder


def find_builder() -> Builder:
    """Return the first of docker, podman and buildah that works here.

    Raise RuntimeError, with all three names, if none works.
    """
    for program in ("docker", "podman"):
        if shutil.which(program) and _succeeds([program, "info"], seconds=ANSWER_SECONDS):
            return EngineBuilder(program)
    if shutil.which("buildah"):
        return BuildahBuilder()
    raise RuntimeError(
        "no tool builds images here: start Docker, or install podman or buildah (Debian package `buildah`)"
    )


def _run(words: list[str]) -> None:
    """Run a command and raise RuntimeError with the end of its output if it fails."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed with {done.returncode}:\n{done.stdout[-3000:]}")


def _references(words: list[str]) -> list[str]:
    """Return the references in a listing of images. Images without a name are intermediate build steps."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.split() if "<none>" not in line]


def _succeeds(words: list[str], *, seconds: float = 60) -> bool:
    """Return True if a command succeeds in time; ignore its output."""
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=seconds, env=os.environ)
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return False
    return done.returncode == 0
