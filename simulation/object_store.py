"""Object stores for simulated buckets: servers on 127.0.0.1 with the APIs of the clouds' stores, and their clients."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener
from xml.etree import ElementTree

from infra.project import CHECKOUT
from setup.go_programs import GCS_SERVER
from simulation.cloud.model import Properties

HOST = "127.0.0.1"
WITHOUT_PROXY = build_opener(ProxyHandler({}))
"""HTTP client that ignores the proxy variables."""
START_SECONDS = 60.0
"""Maximum seconds until a store accepts connections."""
S3_ENVIRONMENT = ".venv-stores"
"""Python environment of moto, which simulates S3."""
S3_REQUIREMENTS = "images/stores/requirements.txt"
SETTINGS_KEY = "object_store"
"""Key of the store's URL scheme and port in the settings of the simulated cloud."""
AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Authorization header that moto requires but does not check."""


class StoreError(Exception):
    """A store answered with an error, for example because a bucket is missing."""


@dataclass(frozen=True)
class GoogleStore:
    """Client of fake-gcs-server, with Cloud Storage's JSON API: https://cloud.google.com/storage/docs/json_api/v1."""

    port: int

    def create(self, bucket: str) -> None:
        """Create a bucket, unless it exists: https://cloud.google.com/storage/docs/json_api/v1/buckets/insert"""
        if bucket not in self.buckets():
            self._request("POST", "/storage/v1/b?project=rehearsal", json.dumps({"name": bucket}).encode())

    def write(self, bucket: str, key: str) -> None:
        """Write an object: https://cloud.google.com/storage/docs/json_api/v1/objects/insert"""
        self._request(
            "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}", b"rehearsal"
        )

    def keys(self, bucket: str) -> list[str]:
        """List the objects: https://cloud.google.com/storage/docs/json_api/v1/objects/list"""
        found = json.loads(self._request("GET", f"/storage/v1/b/{bucket}/o"))
        return [str(each["name"]) for each in found.get("items") or []]

    def clear(self, bucket: str) -> None:
        """Delete all objects: https://cloud.google.com/storage/docs/json_api/v1/objects/delete"""
        for key in self.keys(bucket):
            self._request("DELETE", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}")

    def delete(self, bucket: str) -> None:
        """Delete an empty bucket: https://cloud.google.com/storage/docs/json_api/v1/buckets/delete"""
        self._request("DELETE", f"/storage/v1/b/{bucket}")

    def buckets(self) -> list[str]:
        """List the buckets: https://cloud.google.com/storage/docs/json_api/v1/buckets/list"""
        found = json.loads(self._request("GET", "/storage/v1/b?project=rehearsal"))
        return [str(each["name"]) for each in found.get("items") or []]

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        return _response(Request(f"http://{HOST}:{self.port}{path}", body, method=method))


@dataclass(frozen=True)
class AmazonStore:
    """Client of moto, with S3's API: https://docs.aws.amazon.com/AmazonS3/latest/API. Its buckets are versioned."""

    port: int

    def create(self, bucket: str) -> None:
        """Create a bucket, unless it exists: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucket.html"""
        if bucket not in self.buckets():
            self._request("PUT", f"/{bucket}")
            enabled = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            self._request("PUT", f"/{bucket}?versioning", enabled)

    def write(self, bucket: str, key: str) -> None:
        """Write an object: https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html"""
        self._request("PUT", f"/{bucket}/{quote(key)}", b"rehearsal")

    def keys(self, bucket: str) -> list[str]:
        """List the objects: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html"""
        return self._texts(f"/{bucket}?list-type=2", "Contents", "Key")

    def clear(self, bucket: str) -> None:
        """Delete all versions: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html"""
        for kind in ("Version", "DeleteMarker"):
            keys = self._texts(f"/{bucket}?versions", kind, "Key")
            for key, version in zip(keys, self._texts(f"/{bucket}?versions", kind, "VersionId"), strict=True):
                self._request("DELETE", f"/{bucket}/{quote(key)}?versionId={version}")

    def delete(self, bucket: str) -> None:
        """Delete an empty bucket: https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteBucket.html"""
        self._request("DELETE", f"/{bucket}")

    def buckets(self) -> list[str]:
        """List the buckets: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListBuckets.html"""
        return self._texts("/", "Bucket", "Name")

    def _texts(self, path: str, element: str, child: str) -> list[str]:
        root = ElementTree.fromstring(self._request("GET", path))
        return [each.findtext(f"{{*}}{child}") or "" for each in root.iterfind(f".//{{*}}{element}")]

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Authorization": AUTHORIZATION, "Content-Type": "application/octet-stream"}
        return _response(Request(f"http://{HOST}:{self.port}{path}", body, headers, method=method))


def _response(request: Request) -> bytes:
    try:
        with WITHOUT_PROXY.open(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content
    except HTTPError as error:
        text = " ".join(error.read().decode(errors="replace").split())
        raise StoreError(f"{error.code}: {text[:300]}") from error


def s3_server() -> Path:
    """Return the program of the S3 server. Install a missing program, and report progress on standard error."""
    command = [str(CHECKOUT / "setup" / "python"), S3_ENVIRONMENT, S3_REQUIREMENTS]
    subprocess.run(command, cwd=CHECKOUT, check=True, stdout=sys.stderr)
    return CHECKOUT / S3_ENVIRONMENT / "bin" / "moto_server"


ObjectStore = GoogleStore | AmazonStore
STORES: Mapping[str, type[ObjectStore]] = {"gs": GoogleStore, "s3": AmazonStore}
"""URL scheme -> client of its store."""
PROGRAMS: Mapping[str, Callable[[], Path]] = {"gs": lambda: GCS_SERVER.folder / GCS_SERVER.binary, "s3": s3_server}
"""URL scheme -> function that returns the program of its store."""


def store_of(settings: Properties) -> ObjectStore | None:
    """Return the store in the settings of the simulated cloud, or None."""
    found = settings.get(SETTINGS_KEY)
    return STORES[found["scheme"]](int(found["port"])) if found else None


@contextmanager
def running(scheme: str) -> Iterator[Properties]:
    """Run a store for a URL scheme. Yield the settings that a simulated cloud needs to use it.

    The store ends when the `with` block or this process ends.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    options = {
        "gs": ["-backend=memory", "-scheme=http", f"-host={HOST}", f"-port={port}", f"-public-host={HOST}:{port}"],
        "s3": ["-H", HOST, "-p", str(port)],
    }
    command = ["setpriv", "--pdeathsig", "KILL", str(PROGRAMS[scheme]()), *options[scheme]]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(server, port)
        yield {SETTINGS_KEY: {"scheme": scheme, "port": port}}
    finally:
        server.kill()
        server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(
                f"the object store exited with status {server.returncode} before it accepted connections; try again"
            )
        try:
            socket.create_connection((HOST, port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise RuntimeError(f"the object store did not accept connections within {START_SECONDS:.0f} s; try again")
