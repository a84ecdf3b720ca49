"""Pulumi CLI and plugins: from PATH, else from the official release, else built from Go modules."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from infra.local.settings import cache_folder
from setup.go_programs import EmbeddedFiles, GoProgram, build_all
from setup.releases import DownloadError, Downloads

RELEASE_URL = "https://get.pulumi.com"
RELEASE_VERSION = "3.255.0"
RELEASE_DIGESTS = {
    "x64": "cf559568e2c32f7fae56ea3de8ae5fa48973ba8c5aa9dd2b3dc0c8898fe50dba",
    "arm64": "699fbc6ea848d997e9b3645487f108d27b1b55ec807c7576406131e6e080f0e3",
}
"""SHA-256 of the release's archives, from its checksum file."""
BUILT_VERSION = "3.274.1"
BUILT_CLI = GoProgram(
    module="pulumi",
    package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    flags=[f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{BUILT_VERSION}"],
    binary="pulumi",
)
BUILT_CLI_FOLDER = (".trainyard", "cli")
"""Subfolder of a checkout with the built CLI and its stand-ins, see `bundle_cli`."""
STAND_INS = Path(__file__).resolve().parent / "stand_ins" / "bin"
KUBERNETES_PLUGIN_VERSION = "4.25.0"
"""Version of the Python package pulumi-kubernetes. Pulumi requires the plugin of exactly this version."""
KUBERNETES_PLUGIN_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
KUBERNETES_PLUGIN_NAME = "pulumi-resource-kubernetes"
KUBERNETES_PLUGIN = GoProgram(
    module="pulumi-kubernetes",
    package=".",
    binary=KUBERNETES_PLUGIN_NAME,
    # The module's version in go.mod contains the commit of the tag v4.25.0.
    flags=[f"-X main.version={KUBERNETES_PLUGIN_VERSION}"],
    embedded=EmbeddedFiles(
        module=KUBERNETES_PLUGIN_MODULE,
        folder=f"cmd/{KUBERNETES_PLUGIN_NAME}",
        names=("schema.json", "terraform-mapping.json"),
    ),
)
BUILT_PLUGIN_HOME = (".trainyard", "pulumi-home")
"""Subfolder of a checkout with a Pulumi home for the built plugin."""
PLUGIN_DOWNLOAD_SECONDS = 300


def release_folder() -> Path:
    """Return the folder of the official release."""
    return cache_folder() / "bin" / f"pulumi-release-{RELEASE_VERSION}"


def cli_folders() -> list[Path]:
    """Return a list with the folder of set-up's Pulumi CLI; empty if there is none, or if PATH has another CLI."""
    if _has_own_cli():
        return []
    return [folder for folder in (release_folder(), BUILT_CLI.folder) if (folder / "pulumi").exists()][:1]


def bundle_cli(folder: Path) -> Path:
    """Create the equivalent of a release's folder: the built CLI and, next to it, stand-ins for missing programs.

    Pulumi would warn about stand-ins on PATH. The folder belongs to one checkout, as the stand-ins do. The CLI is a
    hard link if the file system allows one, else a copy.
    """
    folder.mkdir(parents=True, exist_ok=True)
    built, cli = BUILT_CLI.folder / BUILT_CLI.binary, folder / BUILT_CLI.binary
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
    if before == [BUILT_CLI.folder]:
        return [bundle_cli(checkout.joinpath(*BUILT_CLI_FOLDER))], []
    return before, [STAND_INS / name for name in missing_hosts()]


def is_complete() -> bool:
    """Return True if a CLI and a Kubernetes plugin are available."""
    return has_cli() and has_kubernetes_plugin()


def has_cli() -> bool:
    """Return True if a CLI is available."""
    return _has_own_cli() or (release_folder() / "pulumi").exists() or BUILT_CLI.is_built()


def _has_own_cli() -> bool:
    """Return True if PATH has a CLI that set-up did not install. In `make shell`, PATH has set-up's CLI."""
    own = shutil.which("pulumi")
    if own is None:
        return False
    folder = Path(own).parent
    return folder not in (release_folder(), BUILT_CLI.folder) and folder.parts[-2:] != BUILT_CLI_FOLDER


def get_pulumi(downloads: Downloads, progress: Callable[[str], None]) -> None:
    """Install the official CLI and Kubernetes plugin. Build those that this machine cannot download."""
    try:
        downloads.probe(RELEASE_URL)
        if not has_cli():
            fetch_release(downloads)
        if not has_kubernetes_plugin():
            download_kubernetes_plugin(next((str(folder / "pulumi") for folder in cli_folders()), "pulumi"))
    except DownloadError as error:
        downloads.report(error, progress)
    missing = [] if has_cli() else [BUILT_CLI]
    if not has_kubernetes_plugin():
        missing.append(KUBERNETES_PLUGIN)
    build_all(missing)


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
    """Return the folders of stand-ins for programs that neither PATH, nor the CLI's folder, nor Pulumi's home has."""
    wanted = {
        "language": ("pulumi-language-python", "language-python-v*"),
        "dynamic": ("pulumi-resource-pulumi-python", "resource-pulumi-python-v*"),
    }
    return [name for name, (program, plugin) in wanted.items() if not _has_plugin(program, plugin)]


def _has_plugin(program: str, plugin: str) -> bool:
    if any((_users_home() / "plugins").glob(plugin)):
        return True
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)] + cli_folders()
    return any((folder / program).exists() and not _is_stand_in(folder / program) for folder in folders)


def _is_stand_in(program: Path) -> bool:
    """Return True for a stand-in of any checkout. In `make shell`, stand-ins are on PATH."""
    return program.resolve().parts[-5:-2] == STAND_INS.parts[-3:]


def installed_kubernetes_plugin() -> Path | None:
    """Return the plugin that Pulumi runs: one on PATH, the user's own, or set-up's build. None if there is none."""
    if on_path := shutil.which(KUBERNETES_PLUGIN_NAME):
        return Path(on_path)
    build = KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME
    return _users_kubernetes_plugin() or (build if build.exists() else None)


def has_kubernetes_plugin() -> bool:
    """Return True if Pulumi finds a plugin, or if set-up has built one."""
    return _pulumi_has_kubernetes_plugin() or KUBERNETES_PLUGIN.is_built()


def download_kubernetes_plugin(pulumi: str) -> None:
    """Make Pulumi download the official plugin to its home. Raises DownloadError."""
    words = [pulumi, "plugin", "install", "resource", "kubernetes", KUBERNETES_PLUGIN_VERSION]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PLUGIN_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise DownloadError(f"`{' '.join(words[1:])}` took more than {PLUGIN_DOWNLOAD_SECONDS} s") from error
    if done.returncode != 0:
        message = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise DownloadError(f"`{' '.join(words[1:])}` failed: {message}")


def home_with_build(checkout: Path) -> Path | None:
    """Return a Pulumi home with the built plugin and the user's other plugins.

    Return None if Pulumi finds another Kubernetes plugin, or if set-up has built none.

    A separate home is needed: Pulumi warns about plugins on PATH, and Trainyard must not write to the user's home.
    """
    home = checkout.joinpath(*BUILT_PLUGIN_HOME)
    if _pulumi_has_kubernetes_plugin() or not (KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME).exists():
        return None
    add_built_plugin(home)
    if (users := _users_home()) != home and (users / "plugins").is_dir():
        for plugin in (users / "plugins").iterdir():
            copy = home / "plugins" / plugin.name
            if plugin.is_dir() and not copy.exists():
                # Pulumi ignores folders that are links.
                copy.mkdir()
                for file in plugin.iterdir():
                    (copy / file.name).symlink_to(file)
    return home


def credentials_folder() -> Path | None:
    """Return the folder with the user's logins to Pulumi's backends, or None."""
    home = _users_home()
    return home if (home / "credentials.json").exists() and home.parts[-2:] != BUILT_PLUGIN_HOME else None


def add_built_plugin(home: Path) -> None:
    """Add the built plugin to a Pulumi home."""
    folder = home / "plugins" / f"resource-kubernetes-v{KUBERNETES_PLUGIN_VERSION}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link, build = folder / KUBERNETES_PLUGIN_NAME, KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME
    if not link.is_symlink() or link.readlink() != build:
        link.unlink(missing_ok=True)
        link.symlink_to(build)


def _pulumi_has_kubernetes_plugin() -> bool:
    """Return True if the plugin is on PATH or in the user's own Pulumi home."""
    return shutil.which(KUBERNETES_PLUGIN_NAME) is not None or _users_kubernetes_plugin() is not None


def _users_kubernetes_plugin() -> Path | None:
    home = _users_home()
    program = home / "plugins" / f"resource-kubernetes-v{KUBERNETES_PLUGIN_VERSION}" / KUBERNETES_PLUGIN_NAME
    return program if program.exists() and home.parts[-2:] != BUILT_PLUGIN_HOME else None


def _users_home() -> Path:
    return Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
