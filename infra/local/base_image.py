"""Base image of the trainer: the official Python image, or a Debian root file system built on this machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local.image_builder import PRIVATE_MOUNTS, Build, Builder
from infra.local.settings import cache_folder

OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"
REGISTRY = "registry-1.docker.io"
DEBIAN = "bookworm"
MADE_HERE = f"trainyard.local/base:{DEBIAN}-1"
MOUNT_FOLDER = Path("/run/mount")
"""Folder where `mount` keeps its data about mounts.

`mount` creates the folder if it is missing, even if it stays empty.
"""


def base_image(builder: Builder, progress: Callable[[str], None]) -> str:
    """Return the reference of the base image, after making sure that the builder holds it."""
    for reference in (OFFICIAL, MADE_HERE):
        if builder.has(reference):
            return reference
    if _registry_resolves() and builder.pull(OFFICIAL):
        return OFFICIAL
    progress("no image registry is reached: making a Debian base image")
    _make_debian(builder)
    return MADE_HERE


def _registry_resolves() -> bool:
    try:
        socket.getaddrinfo(REGISTRY, 443)
    except OSError:
        return False
    return True


@contextmanager
def _no_new_folder(folder: Path) -> Iterator[None]:
    """Remove a folder that did not exist before, unless it has entries."""
    was_there = folder.exists()
    try:
        yield
    finally:
        if not was_there and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _make_debian(builder: Builder) -> None:
    folder = cache_folder() / "images" / "base"
    if folder.exists():
        shutil.rmtree(folder)
    root = folder / "root"
    root.mkdir(parents=True)
    command = [*PRIVATE_MOUNTS, "debootstrap", "--variant=minbase", DEBIAN, str(root)]
    with _no_new_folder(MOUNT_FOLDER):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"debootstrap failed:\n{done.stdout[-2000:]}")
    archive = folder / "root.tar"
    subprocess.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), "."], check=True)
    shutil.rmtree(root)
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text('FROM scratch\nADD root.tar /\nCMD ["/bin/bash"]\n', encoding="utf-8")
    builder.build(Build(reference=MADE_HERE, context=folder, dockerfile=dockerfile, arguments={}, mounts={}))
    shutil.rmtree(folder)
