"""The Pulumi CLI and its plugins: those on PATH win, then the official release, then builds from Go modules."""

from __future__ import annotations

import hashlib
import os
import platform
import queue
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from infra.local.settings import cache_folder
from setup import kubernetes_plugin
from setup.go_programs import GoProgram, build_all

RELEASE_HOST = "get.pulumi.com"
RELEASE_VERSION = "3.255.0"
RELEASE_DIGESTS = {
    "x64": "cf559568e2c32f7fae56ea3de8ae5fa48973ba8c5aa9dd2b3dc0c8898fe50dba",
    "arm64": "699fbc6ea848d997e9b3645487f108d27b1b55ec807c7576406131e6e080f0e3",
}
"""SHA-256 of the release's archives, as its checksum file gives them."""
ANSWER_SECONDS = 5.0
"""Time for the host's answer, the look-up of its name included."""

BUILT_VERSION = "3.245.0"
BUILT = GoProgram(
    module="pulumi",
    package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    flags=[f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{BUILT_VERSION}"],
    binary="pulumi",
)
CHECKOUT_FOLDER = (".trainyard", "cli")
"""Folder of a checkout with the CLI that was built and its stand-ins, see `bundle`."""
STAND_INS = Path(__file__).resolve().parent / "stand_ins" / "bin"


def release_folder() -> Path:
    """Where the official release is unpacked."""
    return cache_folder() / "bin" / f"pulumi-release-{RELEASE_VERSION}"


def cli_folders() -> list[Path]:
    """Folders with a Pulumi CLI of ours; empty where the machine has its own."""
    if _machines_cli():
        return []
    return [folder for folder in (release_folder(), BUILT.folder) if (folder / "pulumi").exists()][:1]


def bundle(folder: Path) -> Path:
    """Make `folder` what a release's folder is: the CLI that was built and, next to it, the hosts that come with one.

    Pulumi warns of hosts that it takes from PATH. The folder belongs to one checkout, as the stand-ins do; the CLI is
    linked, not copied, where the file system allows.
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
    """Return the folders to put before and after those on PATH for the stacks of `checkout`."""
    before = cli_folders()
    if before == [BUILT.folder]:
        return [bundle(checkout.joinpath(*CHECKOUT_FOLDER))], []
    return before, [STAND_INS / name for name in missing_hosts()]


def is_complete() -> bool:
    """Return True if there is a CLI and a Kubernetes plugin to use."""
    return has_cli() and kubernetes_plugin.is_there()


def has_cli() -> bool:
    """Whether there is a CLI to use."""
    return _machines_cli() or (release_folder() / "pulumi").exists() or BUILT.is_built()


def _machines_cli() -> bool:
    """Whether PATH has a CLI that is not ours; in the shell of `make shell` it has ours."""
    own = shutil.which("pulumi")
    if own is None:
        return False
    folder = Path(own).parent
    return folder not in (release_folder(), BUILT.folder) and folder.parts[-2:] != CHECKOUT_FOLDER


def get_pulumi(progress: Callable[[str], None]) -> None:
    """Get the CLI and the Kubernetes plugin: the official ones, or builds if they cannot be downloaded."""
    problem = problem_with(f"https://{RELEASE_HOST}/")
    if not problem:
        try:
            if not has_cli():
                fetch_release()
            if not kubernetes_plugin.is_there():
                kubernetes_plugin.download(_cli())
        except (OSError, ValueError) as error:
            problem = str(error)
    missing = {f"Pulumi {BUILT_VERSION}": BUILT} if not has_cli() else {}
    if not kubernetes_plugin.is_there():
        missing[f"pulumi-kubernetes {kubernetes_plugin.VERSION}"] = kubernetes_plugin.BUILT
    if missing:
        progress(f"no official download ({problem}): building {' and '.join(missing)} from Go modules")
        build_all(list(missing.values()))


def problem_with(url: str) -> str:
    """Return why a server does not answer, "" if it does; takes ANSWER_SECONDS at most.

    In a thread, because the look-up of a name has no time-out.
    """
    answers: queue.Queue[str] = queue.Queue()

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=ANSWER_SECONDS).close()
            answers.put("")
        except urllib.error.HTTPError as error:
            error.close()
            answers.put("")
        except OSError as error:
            answers.put(f"{url}: {error}")

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=ANSWER_SECONDS)
    except queue.Empty:
        return f"{url}: no answer in {ANSWER_SECONDS:.0f} s"


def _cli() -> str:
    """Return the path of the CLI that stacks use."""
    return next((str(folder / "pulumi") for folder in cli_folders()), "pulumi")


def fetch_release() -> None:
    """Download the official release, check its digest and unpack it. Raises OSError or ValueError."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine())
    if machine is None:
        raise ValueError(f"no release for {platform.machine()}")
    url = f"https://{RELEASE_HOST}/releases/sdk/pulumi-v{RELEASE_VERSION}-linux-{machine}.tar.gz"
    archive = cache_folder() / "pulumi.tar.gz"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as reply, archive.open("wb") as file:
        shutil.copyfileobj(reply, file)
    try:
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != RELEASE_DIGESTS[machine]:
            raise ValueError(f"{url} has SHA-256 {digest}, not {RELEASE_DIGESTS[machine]}")
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
    """Whether a program is a stand-in, of this checkout or another: in the shell of `make shell` they are on PATH."""
    return program.resolve().parts[-5:-2] == STAND_INS.parts[-3:]
