"""Pulumi CLI and plugins: from PATH, else from the official release, else built from Go modules."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from infra.local.settings import cache_folder
from setup import kubernetes_plugin
from setup.downloads import DownloadError, Downloads
from setup.go_programs import GoProgram, build_all

RELEASE_URL = "https://get.pulumi.com"
RELEASE_VERSION = "3.255.0"
RELEASE_DIGESTS = {
    "x64": "cf559568e2c32f7fae56ea3de8ae5fa48973ba8c5aa9dd2b3dc0c8898fe50dba",
    "arm64": "699fbc6ea848d997e9b3645487f108d27b1b55ec807c7576406131e6e080f0e3",
}
"""SHA-256 of the release's archives, from its checksum file."""
BUILT_VERSION = "3.274.1"
BUILT = GoProgram(
    module="pulumi",
    package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    flags=[f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{BUILT_VERSION}"],
    binary="pulumi",
)
CHECKOUT_FOLDER = (".trainyard", "cli")
"""Folder of a checkout with the built CLI and its stand-ins, see `bundle`."""
STAND_INS = Path(__file__).resolve().parent / "stand_ins" / "bin"


def release_folder() -> Path:
    """Return the folder of the official release."""
    return cache_folder() / "bin" / f"pulumi-release-{RELEASE_VERSION}"


def cli_folders() -> list[Path]:
    """Return the folders with an installed Pulumi CLI. Empty if the machine has its own."""
    if _machines_cli():
        return []
    return [folder for folder in (release_folder(), BUILT.folder) if (folder / "pulumi").exists()][:1]


def bundle(folder: Path) -> Path:
    """Create the equivalent of a release's folder: the built CLI and, next to it, the hosts of a release.

    Pulumi warns about hosts on PATH. The folder belongs to one checkout, as the stand-ins do. The CLI is linked, not
    copied, if the file system allows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    built, cli = BUILT.folder / BUILT.binary, folder / BUILT.binary
    if not cli.exists() or cli.stat().st_mtime_ns != built.stat().st_mtime_ns:
        draft = folder / "pulumi.new"
        draft.unlink(missing_ok=True)
        try:
            draft.hardlink_to(built)
        except OSError:
            shutil.copy2(built, draft)
        draft.replace(cli)
    wanted = {path.name: path for name in missing_hosts() for path in (STAND_INS / name).iterdir()}
    for link in folder.iterdir():
        if link.is_symlink() and link.name not in wanted:
            link.unlink()
    for name, path in wanted.items():
        if not (folder / name).exists():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(path)
    return folder


def path_folders(checkout: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders to add before and after PATH for the stacks of `checkout`."""
    before = cli_folders()
    if before == [BUILT.folder]:
        return [bundle(checkout.joinpath(*CHECKOUT_FOLDER))], []
    return before, [STAND_INS / name for name in missing_hosts()]


def is_complete() -> bool:
    """Return True if a CLI and a Kubernetes plugin are available."""
    return has_cli() and kubernetes_plugin.is_there()


def has_cli() -> bool:
    """Return True if a CLI is available."""
    return _machines_cli() or (release_folder() / "pulumi").exists() or BUILT.is_built()


def _machines_cli() -> bool:
    """Return True if PATH has a CLI that set-up did not install. In `make shell`, PATH has set-up's CLI."""
    own = shutil.which("pulumi")
    if own is None:
        return False
    folder = Path(own).parent
    return folder not in (release_folder(), BUILT.folder) and folder.parts[-2:] != CHECKOUT_FOLDER


def get_pulumi(downloads: Downloads, progress: Callable[[str], None]) -> None:
    """Install the CLI and the Kubernetes plugin: the official ones, or builds if they cannot be downloaded."""
    try:
        downloads.probe(RELEASE_URL)
        if not has_cli():
            fetch_release(downloads)
        if not kubernetes_plugin.is_there():
            kubernetes_plugin.download(_cli())
    except DownloadError as error:
        downloads.report(error, progress)
    missing = [] if has_cli() else [BUILT]
    if not kubernetes_plugin.is_there():
        missing.append(kubernetes_plugin.BUILT)
    build_all(missing)


def _cli() -> str:
    """Return the path of the CLI that stacks use."""
    return next((str(folder / "pulumi") for folder in cli_folders()), "pulumi")


def fetch_release(downloads: Downloads) -> None:
    """Download the official release, check its digest and unpack it. Raises DownloadError."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine())
    if machine is None:
        raise DownloadError(f"no release for {platform.machine()}")
    archive = cache_folder() / "pulumi.tar.gz"
    url = f"{RELEASE_URL}/releases/sdk/pulumi-v{RELEASE_VERSION}-linux-{machine}.tar.gz"
    downloads.fetch(url, RELEASE_DIGESTS[machine], archive)
    try:
        draft = release_folder().with_name(release_folder().name + ".new")
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(parents=True)
        subprocess.run(["tar", "-xzf", str(archive), "-C", str(draft)], check=True)
        (draft / "pulumi").rename(release_folder())
        shutil.rmtree(draft)
    finally:
        archive.unlink()


def missing_hosts() -> list[str]:
    """Return the stand-ins for hosts that are neither on PATH, nor next to the CLI, nor installed by Pulumi."""
    wanted = {
        "language": ("pulumi-language-python", "language-python-v*"),
        "dynamic": ("pulumi-resource-pulumi-python", "resource-pulumi-python-v*"),
    }
    return [name for name, (program, plugin) in wanted.items() if not _has_plugin(program, plugin)]


def _has_plugin(program: str, plugin: str) -> bool:
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    if any((home / "plugins").glob(plugin)):
        return True
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)] + cli_folders()
    return any((folder / program).exists() and not _is_stand_in(folder / program) for folder in folders)


def _is_stand_in(program: Path) -> bool:
    """Return True for a stand-in of any checkout. In `make shell`, stand-ins are on PATH."""
    return program.resolve().parts[-5:-2] == STAND_INS.parts[-3:]
