"""Files of Go modules from the module proxy, checked against go.sum, without a Go toolchain.

Protocol: https://go.dev/ref/mod#goproxy-protocol; checksum: https://go.dev/ref/mod#go-sum-files and
https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash#Hash1.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

DEFAULT_PROXY = "https://proxy.golang.org"
ANSWER_SECONDS = 60


def read_files(module: str, version: str, go_sum: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the files `names` of a module. Raises RuntimeError for a failed download or a wrong checksum."""
    expected = _checksum(module, version, go_sum)
    url = f"{proxy()}/{_escaped(module)}/@v/{_escaped(version)}.zip"
    with tempfile.TemporaryFile() as archive:
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as reply:
                while chunk := reply.read(1 << 20):
                    archive.write(chunk)
        except OSError as error:
            raise RuntimeError(f"{url}: {error}; set GOPROXY to a module proxy that this machine reaches") from error
        if (found := archive_checksum(archive)) != expected:
            raise RuntimeError(f"{url} has checksum {found}, and {go_sum} says {expected}")
        with zipfile.ZipFile(archive) as members:
            return {name: members.read(f"{module}@{version}/{name}") for name in names}


def proxy() -> str:
    """Return the module proxy: the first URL in `$GOPROXY`, else Go's default."""
    listed = re.split(r"[,|]", os.environ.get("GOPROXY", ""))
    return next((each.rstrip("/") for each in listed if each.startswith(("https://", "http://"))), DEFAULT_PROXY)


def archive_checksum(archive: IO[bytes]) -> str:
    """Return the checksum of a module's archive in go.sum's format."""
    with zipfile.ZipFile(archive) as members:
        lines = [f"{_digest(members, name)}  {name}\n" for name in sorted(members.namelist())]
    return f"h1:{base64.b64encode(hashlib.sha256(''.join(lines).encode()).digest()).decode()}"


def _digest(members: zipfile.ZipFile, name: str) -> str:
    with members.open(name) as member:
        return hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]  # has readinto, untyped


def _checksum(module: str, version: str, go_sum: Path) -> str:
    for line in go_sum.read_text(encoding="ascii").splitlines():
        found, at, checksum = line.split(" ")
        if (found, at) == (module, version):
            return checksum
    raise RuntimeError(f"{go_sum} has no checksum of {module} {version}")


def _escaped(text: str) -> str:
    """Return a path or version with escaped capitals: https://go.dev/ref/mod#module-cache."""
    return re.sub(r"[A-Z]", lambda found: f"!{found[0].lower()}", text)
