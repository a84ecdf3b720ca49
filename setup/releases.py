"""Released binaries of the local cluster's programs, for machines that can reach the projects' hosts."""

from __future__ import annotations

import platform
import re
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.local.settings import cache_folder
from setup.downloads import DownloadError, Downloads, listed_digest
from setup.go_programs import MODULES, GoProgram

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Name of each machine architecture in releases."""
GITHUB = "https://github.com"
KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
"""Programs that the local cluster uses from Kubernetes' archive."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Released file of a project."""

    url: str
    """URL of the file."""
    checksums: str
    """URL of the project's text with the file's checksum."""
    listed_as: str
    """Name of the file in that text."""
    members: Mapping[str, str]
    """Path of each program in the archive. Unused if the file is the program itself."""

    def fetch(self, downloads: Downloads, folder: Path) -> dict[str, Path]:
        """Download the file into `folder` and return its programs. Raises DownloadError."""
        digest = listed_digest(downloads.text(self.checksums), self.listed_as)
        file = folder / self.url.rpartition("/")[2]
        downloads.fetch(self.url, digest, file)
        if not tarfile.is_tarfile(file):
            return dict.fromkeys(self.members, file)
        with tarfile.open(file) as archive:
            for name, member in self.members.items():
                source = archive.extractfile(member)
                if source is None:
                    raise DownloadError(f"{self.url} has no file {member}")
                with source, (folder / name).open("wb") as target:
                    while chunk := source.read(1 << 20):
                        target.write(chunk)
        return {name: folder / name for name in self.members}


def pinned(module: str, folder: str) -> str:
    """Return the version of a Go module in setup/go/FOLDER/go.mod, without its `v`. Raises ValueError."""
    text = (MODULES / folder / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^\s*(?:require )?{re.escape(module)} v(\S+)", text)
    if found is None:
        raise ValueError(f"setup/go/{folder}/go.mod does not pin {module}")
    return found[1]


def install(programs: Sequence[GoProgram], releases: Sequence[Release], downloads: Downloads) -> None:
    """Install released programs in the folders of their builds. Raises DownloadError, and then installs none."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        found: dict[str, Path] = {}
        for release in releases:
            found |= release.fetch(downloads, Path(folder))
        for program in programs:
            program.install({name: found[name] for name in (program.binary, *program.names) if name in found})


def kubernetes_releases(version: str) -> list[Release]:
    """Return the releases with the programs of the control plane and the kubelets. Raises DownloadError."""
    machine = _architecture()
    server = f"https://dl.k8s.io/v{version}/kubernetes-server-linux-{machine}.tar.gz"
    minor = version.rpartition(".")[0]
    etcd, coredns = (
        pinned("go.etcd.io/etcd/server/v3", "kubernetes"),
        pinned("github.com/coredns/coredns", "kubernetes"),
    )
    etcd_file, coredns_file = f"etcd-v{etcd}-linux-{machine}", f"coredns_{coredns}_linux_{machine}.tgz"
    etcd_folder = f"{GITHUB}/etcd-io/etcd/releases/download/v{etcd}"
    coredns_url = f"{GITHUB}/coredns/coredns/releases/download/v{coredns}/{coredns_file}"
    return [
        Release(
            url=server,
            checksums=f"https://raw.githubusercontent.com/kubernetes/kubernetes/master/CHANGELOG/CHANGELOG-{minor}.md",
            listed_as=f"({server})",
            members={name: f"kubernetes/server/bin/{name}" for name in KUBERNETES_PROGRAMS},
        ),
        Release(
            url=f"{etcd_folder}/{etcd_file}.tar.gz",
            checksums=f"{etcd_folder}/SHA256SUMS",
            listed_as=f"{etcd_file}.tar.gz",
            members={"etcd": f"{etcd_file}/etcd"},
        ),
        Release(
            url=coredns_url,
            checksums=f"{coredns_url}.sha256",
            listed_as=coredns_file,
            members={"coredns": "coredns"},
        ),
    ]


def runtime_releases(containerd: str, runc: str) -> list[Release]:
    """Return the releases with the container runtime programs. Raises DownloadError."""
    machine = _architecture()
    file = f"containerd-{containerd}-linux-{machine}.tar.gz"
    url = f"{GITHUB}/containerd/containerd/releases/download/v{containerd}/{file}"
    runc_folder = f"{GITHUB}/opencontainers/runc/releases/download/v{runc}"
    return [
        Release(
            url=url,
            checksums=f"{url}.sha256sum",
            listed_as=file,
            members={name: f"bin/{name}" for name in ("containerd", "ctr", "containerd-shim-runc-v2")},
        ),
        Release(
            url=f"{runc_folder}/runc.{machine}",
            checksums=f"{runc_folder}/runc.sha256sum",
            listed_as=f"runc.{machine}",
            members={"runc": ""},
        ),
    ]


def _architecture() -> str:
    machine = ARCHITECTURES.get(platform.machine())
    if machine is None:
        raise DownloadError(f"the projects release nothing for {platform.machine()}")
    return machine
