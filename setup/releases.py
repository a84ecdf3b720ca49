"""Official releases of the local cluster's programs, and their download with a limited wait and a checksum."""

from __future__ import annotations

import hashlib
import http.client
import platform
import queue
import re
import shutil
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from infra.local.image_store import ARCHITECTURES
from infra.local.settings import PROGRAMS, cache_folder
from setup.go_programs import MODULES, GoProgram

PROBE_SECONDS = 5.0
"""Total time that all unanswered requests of one set-up may take."""
READ_SECONDS = 30.0
"""Maximum time without a byte during a download."""


class DownloadError(RuntimeError):
    """Error for a release that cannot be downloaded. The message gives the reason."""


class Downloads:
    """Downloads of one set-up run. They share the time for unanswered requests."""

    def __init__(self, *, probe_seconds: float = PROBE_SECONDS, read_seconds: float = READ_SECONDS) -> None:
        self._left = self._probe_seconds = probe_seconds
        self._read_seconds = read_seconds
        self._lock = threading.Lock()
        self._reported = False

    def fetch(self, url: str, digest: str, file: Path) -> None:
        """Download `url` to `file` if its hexadecimal checksum is `digest`, a SHA-512 or SHA-256.

        Raises DownloadError, and leaves no file, if the server does not answer, stops in the middle or sends another
        file.
        """
        algorithm = {64: "sha256", 128: "sha512"}[len(digest)]
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.part")
        try:
            with self._open(url) as reply, draft.open("wb") as target:
                shutil.copyfileobj(reply, target)
            with draft.open("rb") as written:
                found = hashlib.file_digest(written, algorithm).hexdigest()
            if found != digest:
                raise DownloadError(f"{url} has {algorithm} {found[:12]}..., not {digest[:12]}...")
            draft.replace(file)
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"{url}: {_reason(error)}") from error
        finally:
            draft.unlink(missing_ok=True)

    def text(self, url: str) -> str:
        """Return the text at `url`. Raises DownloadError."""
        try:
            with self._open(url) as reply:
                return reply.read().decode()
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            raise DownloadError(f"{url}: {_reason(error)}") from error

    def probe(self, url: str) -> None:
        """Ask a server for any answer. Raises DownloadError if there is none."""
        try:
            self._open(url).close()
        except urllib.error.HTTPError:
            return
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"{url}: {_reason(error)}") from error

    def report(self, error: DownloadError, progress: Callable[[str], None]) -> None:
        """Report once per set-up that it builds programs instead of downloading releases."""
        with self._lock:
            first, self._reported = not self._reported, True
        if first:
            progress(f"no official release ({error}): building from Go modules")

    def _open(self, url: str) -> IO[bytes]:
        """Open `url` within the remaining time for probes.

        The request runs in a thread, because the lookup of a host name has no time-out.
        """
        with self._lock:
            if self._left <= 0:
                seconds = f"{self._probe_seconds:.0f} s"
                raise DownloadError(f"{url}: not tried, because official hosts did not answer for {seconds}")
            started = time.monotonic()
            answers: queue.Queue[IO[bytes] | Exception] = queue.Queue()
            threading.Thread(target=_request, args=(url, self._read_seconds, answers.put), daemon=True).start()
            try:
                answer = answers.get(timeout=self._left)
            except queue.Empty:
                answer = TimeoutError("no answer")
            if isinstance(answer, Exception):
                self._left -= time.monotonic() - started
                raise answer
        return answer


def _request(url: str, seconds: float, put: Callable[[IO[bytes] | Exception], None]) -> None:
    try:
        put(urllib.request.urlopen(url, timeout=seconds))
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        put(error)


def listed_digest(text: str, name: str) -> str:
    """Return the SHA-512 or SHA-256 on the line of `text` with `name`. Raises DownloadError if there is none."""
    for line in text.splitlines():
        found = re.search(r"\b(?:[0-9a-f]{128}|[0-9a-f]{64})\b", line)
        if found and re.search(re.escape(name) + r"(?![\w.])", line):
            return found[0]
    raise DownloadError(f"the project's list of checksums has no checksum of {name}")


GITHUB = "https://github.com"
KUBERNETES_PROGRAMS = tuple(name for name in PROGRAMS if name not in ("etcd", "coredns"))
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
    """Program -> its path in the archive. If the file is the program itself, the path is unused."""

    def fetch(self, downloads: Downloads, folder: Path) -> dict[str, Path]:
        """Download the file into `folder` and return its programs. Raises DownloadError."""
        digest = listed_digest(downloads.text(self.checksums), self.listed_as)
        file = folder / self.url.rpartition("/")[2]
        downloads.fetch(self.url, digest, file)
        if not tarfile.is_tarfile(file):
            return dict.fromkeys(self.members, file)
        with tarfile.open(file) as archive:
            for name, member in self.members.items():
                source = archive.extractfile(member) if member in archive.getnames() else None
                if source is None:
                    raise DownloadError(f"{self.url} has no file {member}")
                with source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
        return {name: folder / name for name in self.members}


def pinned(module: str, folder: str) -> str:
    """Return the version of a Go module in setup/go/FOLDER/go.mod, without its `v`. Raises ValueError."""
    text = (MODULES / folder / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^\s*(?:require )?{re.escape(module)} v(\S+)", text)
    if found is None:
        raise ValueError(f"setup/go/{folder}/go.mod does not pin {module}")
    return found[1]


def install(programs: Sequence[GoProgram], releases: Sequence[Release], downloads: Downloads) -> None:
    """Download all releases, then install their programs in the folders of the builds. Raises DownloadError."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        found: dict[str, Path] = {}
        for release in releases:
            found |= release.fetch(downloads, Path(folder))
        for program in programs:
            program.install({name: found[name] for name in (program.binary, *program.names) if name in found})


def kubernetes_releases(version: str) -> list[Release]:
    """Return the releases with the programs of the control plane and the nodes.

    Raises DownloadError for a machine architecture without releases.
    """
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
    """Return the releases with the container runtime programs.

    Raises DownloadError for a machine architecture without releases.
    """
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


def _reason(error: Exception) -> str:
    """Return the message of an error, without the class and number that urllib adds to it."""
    reason = error.reason if type(error) is urllib.error.URLError else error
    if isinstance(reason, OSError) and reason is not error and reason.strerror:
        return reason.strerror
    return str(reason)


def _architecture() -> str:
    machine = ARCHITECTURES.get(platform.machine())
    if machine is None:
        raise DownloadError(f"the projects publish no releases for {platform.machine()}")
    return machine
