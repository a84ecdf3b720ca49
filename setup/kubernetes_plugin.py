"""Kubernetes plugin of Pulumi: its location, download and build, and a Pulumi home with the build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setup.downloads import DownloadError
from setup.go_programs import EmbeddedFiles, GoProgram

VERSION = "4.25.0"
"""Version of the Python package. Pulumi requires the plugin of exactly this version."""
MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
PROGRAM = "pulumi-resource-kubernetes"
BUILT = GoProgram(
    module="pulumi-kubernetes",
    package=".",
    binary=PROGRAM,
    # The module's version in go.mod contains the commit of the tag v4.25.0.
    flags=[f"-X main.version={VERSION}"],
    embedded=EmbeddedFiles(module=MODULE, folder=f"cmd/{PROGRAM}", names=("schema.json", "terraform-mapping.json")),
)
HOME = (".trainyard", "pulumi-home")
"""Folder of a checkout with a Pulumi home for the built plugin."""
DOWNLOAD_SECONDS = 300


def installed_program() -> Path | None:
    """Return the plugin that Pulumi runs: one on PATH, the user's own, or the build. None without any."""
    if on_path := shutil.which(PROGRAM):
        return Path(on_path)
    build = BUILT.folder / PROGRAM
    return _users_own() or (build if build.exists() else None)


def is_there() -> bool:
    """Return True if Pulumi finds the plugin without the build, or it was built."""
    return _is_found() or BUILT.is_built()


def download(pulumi: str) -> None:
    """Make Pulumi download the official plugin to its home. Raises DownloadError."""
    words = [pulumi, "plugin", "install", "resource", "kubernetes", VERSION]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise DownloadError(f"`{' '.join(words[1:])}` took more than {DOWNLOAD_SECONDS} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise DownloadError(f"`{' '.join(words[1:])}` failed: {said}")


def home_with_build(checkout: Path) -> Path | None:
    """Return a Pulumi home with the built plugin and the user's other plugins, or None if Pulumi finds its own.

    Pulumi warns about each plugin on PATH, and Trainyard must not write to the user's home.
    """
    home = checkout.joinpath(*HOME)
    if _is_found() or not (BUILT.folder / PROGRAM).exists():
        return None
    add_build(home)
    if (users := _users_home()) != home and (users / "plugins").is_dir():
        for plugin in (users / "plugins").iterdir():
            if plugin.is_dir() and not (home / "plugins" / plugin.name).exists():
                # Pulumi ignores folders that are links.
                (home / "plugins" / plugin.name).mkdir()
                for file in plugin.iterdir():
                    (home / "plugins" / plugin.name / file.name).symlink_to(file)
    return home


def credentials_folder() -> Path | None:
    """Return the folder with the user's logins to Pulumi's backends, or None."""
    home = _users_home()
    return home if (home / "credentials.json").exists() and home.parts[-2:] != HOME else None


def add_build(home: Path) -> None:
    """Add the built plugin to a Pulumi home."""
    folder = home / "plugins" / f"resource-kubernetes-v{VERSION}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / PROGRAM).is_symlink() or (folder / PROGRAM).readlink() != BUILT.folder / PROGRAM:
        (folder / PROGRAM).unlink(missing_ok=True)
        (folder / PROGRAM).symlink_to(BUILT.folder / PROGRAM)


def _is_found() -> bool:
    """Return True if the plugin is on PATH or in the user's own Pulumi home."""
    return shutil.which(PROGRAM) is not None or _users_own() is not None


def _users_own() -> Path | None:
    home = _users_home()
    program = home / "plugins" / f"resource-kubernetes-v{VERSION}" / PROGRAM
    return program if program.exists() and home.parts[-2:] != HOME else None


def _users_home() -> Path:
    return Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
