"""Official releases: set-up installs all programs or none, and every program of the local cluster has a release."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.local.settings import KUBERNETES_VERSION, PROGRAMS, RUNTIME_PROGRAMS
from setup.go_programs import GoProgram
from setup.releases import DownloadError, Downloads, Release, install, kubernetes_releases, runtime_releases
from setup.steps import CONTAINERD_VERSION, RUNC_VERSION
from tests.setup.servers import file_server, serving

ARCHIVED = GoProgram(module="kubernetes", package=".", binary="kubernetes", names=["kubelet", "kubectl"])
SINGLE = GoProgram(module="runc", package=".", binary="runc")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """Yield the address of a server and the folder that it serves. The cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "site"
    folder.mkdir()
    with serving(file_server(folder)) as url:
        yield url, folder


def archive(*names: str) -> bytes:
    """Return an archive of programs with these names. Each contains its name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as members:
        for name in names:
            member = tarfile.TarInfo(f"server/bin/{name}")
            member.size = len(name)
            members.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def releases(site: tuple[str, Path], *, runc: bytes = b"runc") -> list[Release]:
    """Return the releases on the server: an archive and a single program, with their checksums.

    The server sends `runc` as the single program. The checksum is that of `b"runc"`.
    """
    url, folder = site
    packed = archive("kubelet", "kubectl", "unused")
    (folder / "server.tar.gz").write_bytes(packed)
    (folder / "runc.amd64").write_bytes(runc)
    sums = f"{hashlib.sha512(packed).hexdigest()}  server.tar.gz\n{hashlib.sha256(b'runc').hexdigest()}  runc.amd64\n"
    (folder / "SUMS").write_text(sums, encoding="ascii")
    members = {name: f"server/bin/{name}" for name in ARCHIVED.names}
    server = Release(url=f"{url}/server.tar.gz", checksums=f"{url}/SUMS", listed_as="server.tar.gz", members=members)
    single = Release(url=f"{url}/runc.amd64", checksums=f"{url}/SUMS", listed_as="runc.amd64", members={"runc": ""})
    return [server, single]


def test_install_with_correct_checksums_stores_programs_in_the_build_folders(site: tuple[str, Path]) -> None:
    install([ARCHIVED, SINGLE], releases(site), Downloads())
    assert ARCHIVED.is_built()
    assert SINGLE.is_built()
    assert (ARCHIVED.folder / "kubectl").read_bytes() == b"kubectl"
    assert (SINGLE.folder / "runc").read_bytes() == b"runc"
    assert (SINGLE.folder / "runc").stat().st_mode & 0o111
    assert sorted(path.name for path in ARCHIVED.folder.iterdir()) == ["kubectl", "kubelet", "sources"]


def test_install_with_a_wrong_checksum_installs_nothing(site: tuple[str, Path]) -> None:
    with pytest.raises(DownloadError, match="has sha256"):
        install([ARCHIVED, SINGLE], releases(site, runc=b"another"), Downloads())
    assert not ARCHIVED.is_built()
    assert not SINGLE.is_built()
    assert [path for path in (ARCHIVED.folder.parents[1]).rglob("*") if path.is_file()] == []


def test_install_with_a_program_missing_in_its_archive_installs_nothing(site: tuple[str, Path]) -> None:
    server, single = releases(site)
    lacking = replace(server, members={**server.members, "kubelet": "server/bin/other"})
    with pytest.raises(DownloadError, match="has no file server/bin/other"):
        install([ARCHIVED, SINGLE], [lacking, single], Downloads())
    assert not ARCHIVED.is_built()


def test_install_with_a_missing_release_installs_nothing(site: tuple[str, Path]) -> None:
    found = releases(site)
    (site[1] / "runc.amd64").unlink()
    with pytest.raises(DownloadError, match="404"):
        install([ARCHIVED, SINGLE], found, Downloads())
    assert not ARCHIVED.is_built()


def test_releases_have_every_program_of_the_cluster() -> None:
    found = kubernetes_releases(KUBERNETES_VERSION)
    assert {name for release in found for name in release.members} == set(PROGRAMS)
    found = runtime_releases(CONTAINERD_VERSION, RUNC_VERSION)
    assert {name for release in found for name in release.members} == set(RUNTIME_PROGRAMS)
