"""Files of Go modules: download from the user's proxy, verified by the checksum in go.sum."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from setup.operators import proxy, read_files
from tests.setup.servers import file_server, serving

MODULE, VERSION = "example.com/Made/up", "v1.2.3"
CHECKSUM = "h1:gBdmIL0oLieFHAlGvuHIBPKeRU19RofZ/Li0HlvmPss="
"""Checksum that golang.org/x/mod/sumdb/dirhash computes for the archive whose `b.yaml` is `b: 2`."""


def archive(content: str) -> bytes:
    """Return the archive of a module with two files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as members:
        members.writestr(f"{MODULE}@{VERSION}/b.yaml", content)
        members.writestr(f"{MODULE}@{VERSION}/a/a.yaml", "a: 1\n")
    return packed.getvalue()


@pytest.fixture
def served_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the path at which the test's module proxy serves the archive. The file does not exist yet."""
    file = tmp_path / "example.com" / "!made" / "up" / "@v" / f"{VERSION}.zip"
    file.parent.mkdir(parents=True)
    with serving(file_server(tmp_path)) as url:
        monkeypatch.setenv("GOPROXY", f"{url}/,direct")
        yield file


@pytest.fixture
def go_sum(tmp_path: Path) -> Path:
    """Return a go.sum that contains the module."""
    path = tmp_path / "go.sum"
    path.write_text(f"{MODULE} {VERSION}/go.mod h1:other=\n{MODULE} {VERSION} {CHECKSUM}\n", encoding="ascii")
    return path


def test_read_files_returns_the_files(served_archive: Path, go_sum: Path) -> None:
    served_archive.write_bytes(archive("b: 2\n"))
    assert read_files(MODULE, VERSION, go_sum, ["b.yaml"]) == {"b.yaml": b"b: 2\n"}


def test_read_files_rejects_a_wrong_checksum(served_archive: Path, go_sum: Path) -> None:
    served_archive.write_bytes(archive("b: 3\n"))
    with pytest.raises(RuntimeError, match=r"has checksum h1:.*, not h1:gBdm"):
        read_files(MODULE, VERSION, go_sum, ["b.yaml"])


@pytest.mark.usefixtures("served_archive")
def test_read_files_without_a_checksum_sends_no_request(go_sum: Path) -> None:
    with pytest.raises(RuntimeError, match="has no checksum of"):
        read_files(MODULE, "v1.2.4", go_sum, ["b.yaml"])


@pytest.mark.usefixtures("served_archive")
def test_read_files_of_a_module_that_the_proxy_lacks_names_the_remedy(go_sum: Path) -> None:
    with pytest.raises(RuntimeError, match=r"404.*set GOPROXY"):
        read_files(MODULE, VERSION, go_sum, ["b.yaml"])


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "https://proxy.golang.org"),
        ("direct", "https://proxy.golang.org"),
        ("https://go.example.com/,direct", "https://go.example.com"),
        ("off|https://a.example.com", "https://a.example.com"),
    ],
)
def test_proxy_is_the_first_url_of_goproxy(monkeypatch: pytest.MonkeyPatch, value: str, url: str) -> None:
    monkeypatch.setenv("GOPROXY", value)
    assert proxy() == url
