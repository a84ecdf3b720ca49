"""Builds an image with the tool that this machine has (docker, podman or buildah) and hands it on as an archive."""

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
"""buildah's mounts vanish with it, however it ends."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One image to build."""

    reference: str
    """Name and tag of the result."""
    context: Path
    """Folder that COPY reads from."""
    dockerfile: Path
    """The Dockerfile."""
    arguments: Mapping[str, str]
    """Build arguments."""
    mounts: Mapping[Path, str]
    """Folders and files of this machine that RUN steps see, and where; they are never part of a layer."""


class EngineBuilder:
    """docker or podman: both speak the same commands."""

    def __init__(self, program: str) -> None:
        self.program = program

    def build(self, build: Build) -> None:
        """Build with the engine; it needs no mounts of ours, having its own network and caches."""
        arguments = [word for key, value in build.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        _run(
            [self.program, "build", "-t", build.reference, "-f", str(build.dockerfile), *arguments, str(build.context)]
        )

    def has(self, reference: str) -> bool:
        """Whether the engine holds the image."""
        return _succeeds([self.program, "image", "inspect", reference])

    def pull(self, reference: str) -> bool:
        """Whether a registry gave the image."""
        return _succeeds([self.program, "pull", "-q", reference], seconds=600)

    def images(self) -> list[str]:
        """References of the images that the engine holds."""
        return _references([self.program, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"])

    def remove(self, references: Sequence[str]) -> None:
        """Remove images, and their layers that no other image has."""
        _run([self.program, "image", "rm", *references])

    def write_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive that containerd imports."""
        subprocess.run([self.program, "save", reference], stdout=target, check=True)

    def chains_left_out(self, _reference: str) -> set[str]:
        """The engine's archives are whole."""
        return set()

    def write_whole_archive(self, reference: str, target: IO[bytes]) -> None:
        """The same: the engine's archives are whole."""
        self.write_archive(reference, target)

    def forget_large_layers(self, _reference: str) -> list[str]:
        """The engine keeps its layers."""
        return []


class BuildahBuilder:
    """buildah with a storage of Trainyard's own."""

    def __init__(self) -> None:
        images = cache_folder() / "images"
        self.layout = images / "layout"
        storage = ["--root", str(images / "buildah"), "--runroot", str(images / "buildah-run")]
        self.command = [*PRIVATE_MOUNTS, "buildah", "--storage-driver", "overlay", *storage]
        images.mkdir(parents=True, exist_ok=True)

    def build(self, build: Build) -> None:
        """Build with cached layers, each RUN step in a chroot: no privileges beyond root are asked for."""
        arguments = [word for key, value in build.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        mounts = [word for source, target in build.mounts.items() for word in ("--volume", f"{source}:{target}:rw")]
        # What a build that was cut off left behind: nothing else builds in this storage meanwhile.
        _run([*self.command, "rm", "--all"])
        words = ["build", "--isolation", "chroot", "--layers", *mounts, *arguments]
        _run([*self.command, *words, "-t", build.reference, "-f", str(build.dockerfile), str(build.context)])

    def has(self, reference: str) -> bool:
        """Whether buildah holds the image."""
        return _succeeds([*self.command, "inspect", "--type", "image", reference])

    def pull(self, reference: str) -> bool:
        """Whether a registry gave the image."""
        return _succeeds([*self.command, "pull", "--quiet", reference], seconds=600)

    def images(self) -> list[str]:
        """References of the images in the storage."""
        return _references([*self.command, "images", "--format", "{{.Name}}:{{.Tag}}"])

    def remove(self, references: Sequence[str]) -> None:
        """Remove images, and their layers and cached steps that no other image has."""
        _run([*self.command, "rmi", *references])

    def write_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive, without layers that every node already has."""
        self._lay_out(reference)
        oci_layout.write_archive(self.layout, reference, target)

    def chains_left_out(self, reference: str) -> set[str]:
        """The unpacked layers that a node must have already to take the archive, by containerd's names."""
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
        """Give back the space of layers that the image store has unpacked; returns their digests."""
        return oci_layout.empty_large_layers(self.layout, reference)


Builder = EngineBuilder | BuildahBuilder


def find_builder() -> Builder:
    """The first of docker, podman and buildah that works here; raises naming all three where none does."""
    for program in ("docker", "podman"):
        if shutil.which(program) and _succeeds([program, "info"], seconds=ANSWER_SECONDS):
            return EngineBuilder(program)
    if shutil.which("buildah"):
        return BuildahBuilder()
    raise RuntimeError(
        "no tool builds images here: start Docker, or install podman or buildah (Debian package `buildah`)"
    )


def _run(words: list[str]) -> None:
    """Run a build step with its output shown, and in the exception where it fails."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed with {done.returncode}:\n{done.stdout[-3000:]}")


def _references(words: list[str]) -> list[str]:
    """What a listing of images names; those without a name are steps of builds."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.split() if "<none>" not in line]


def _succeeds(words: list[str], *, seconds: float = 60) -> bool:
    """Whether a command ends well in time; its output does not matter."""
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=seconds, env=os.environ)
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return False
    return done.returncode == 0
