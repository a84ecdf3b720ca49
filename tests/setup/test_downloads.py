"""Downloads from a test server: checksums, incomplete files, silent servers. Also checksums in published lists."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from setup.releases import DownloadError, Downloads, listed_digest
from tests.setup.servers import Quiet, serving

CONTENT = b"release" * 1000
DIGEST = hashlib.sha512(CONTENT).hexdigest()


class Releases(Quiet):
    """Handler for /release, /half (ends in the middle), /stalls (pauses in the middle) and /missing (404)."""

    def do_GET(self) -> None:
        """Answer one request."""
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/release" else CONTENT[: len(CONTENT) // 2])
        if self.path == "/stalls":
            self.wfile.flush()
            assert isinstance(self.server, Server)
            self.server.test_ended.wait(60)


class Server(ThreadingHTTPServer):
    """Server of releases."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Releases)
        self.test_ended = threading.Event()


@pytest.fixture
def url() -> Iterator[str]:
    """Yield the address of a server of releases."""
    server = Server()
    with serving(server) as found:
        yield found
        server.test_ended.set()


@pytest.fixture
def silent_url() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/release"


def assert_no_file(folder: Path) -> None:
    """Assert that no file is left, not even a part."""
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("digest", [DIGEST, hashlib.sha256(CONTENT).hexdigest()])
def test_fetch_with_the_right_checksum_writes_the_file(url: str, tmp_path: Path, digest: str) -> None:
    Downloads().fetch(f"{url}/release", digest, tmp_path / "release")
    assert (tmp_path / "release").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "digest", "message"),
    [
        ("release", "0" * 128, "has sha512"),
        ("half", DIGEST, "/half has sha512"),
        ("stalls", DIGEST, "timed out"),
        ("missing", DIGEST, "404"),
    ],
)
def test_failed_fetch_names_the_reason_and_leaves_no_file(
    url: str, tmp_path: Path, path: str, digest: str, message: str
) -> None:
    with pytest.raises(DownloadError, match=message):
        Downloads(read_seconds=0.2).fetch(f"{url}/{path}", digest, tmp_path / "release")
    assert_no_file(tmp_path)


def test_download_is_not_tried_after_a_silent_server(silent_url: str, url: str, tmp_path: Path) -> None:
    downloads = Downloads(probe_seconds=0.3)
    with pytest.raises(DownloadError, match="no answer"):
        downloads.fetch(silent_url, DIGEST, tmp_path / "release")
    with pytest.raises(DownloadError, match="not tried"):
        downloads.fetch(f"{url}/release", DIGEST, tmp_path / "release")
    assert_no_file(tmp_path)


def test_download_after_a_refused_connection_is_tried(url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}/release"
    downloads = Downloads()
    with pytest.raises(DownloadError, match=r": Connection refused$"):
        downloads.fetch(closed, DIGEST, tmp_path / "release")
    downloads.fetch(f"{url}/release", DIGEST, tmp_path / "release")
    assert (tmp_path / "release").read_bytes() == CONTENT


def test_probe_accepts_any_response(url: str, silent_url: str) -> None:
    downloads = Downloads(probe_seconds=0.3)
    downloads.probe(f"{url}/missing")
    with pytest.raises(DownloadError, match="no answer"):
        downloads.probe(silent_url)


def test_only_the_first_failure_is_reported() -> None:
    downloads, lines = Downloads(), list[str]()
    for reason in ("first", "second"):
        downloads.report(DownloadError(reason), lines.append)
    assert lines == ["no official release (first): building from Go modules"]


CHANGELOG = """
filename | sha512 hash
-------- | -----------
[kubernetes-server-linux-amd64.tar.gz](https://example.com/v2/kubernetes-server-linux-amd64.tar.gz) | `{other}`
[kubernetes-server-linux-amd64.tar.gz](https://example.com/v1/kubernetes-server-linux-amd64.tar.gz) | {digest}
"""
SUMS = "{other}  runc.arm64\n{digest}  runc.amd64\n{other} *runc.amd64.asc\n"


@pytest.mark.parametrize("digest", [DIGEST, hashlib.sha256(CONTENT).hexdigest()])
@pytest.mark.parametrize(
    ("text", "name"),
    [(CHANGELOG, "(https://example.com/v1/kubernetes-server-linux-amd64.tar.gz)"), (SUMS, "runc.amd64")],
)
def test_listed_digest_belongs_to_the_named_file(text: str, name: str, digest: str) -> None:
    assert listed_digest(text.format(digest=digest, other="0" * len(digest)), name) == digest


def test_listed_digest_of_an_unlisted_file_is_an_error() -> None:
    with pytest.raises(DownloadError, match=r"has no checksum of runc\.s390x"):
        listed_digest(SUMS.format(digest=DIGEST, other="0" * 128), "runc.s390x")
