"""Images of the local cluster's operators. Each contains one static program; its tag is a hash of the sources.

Layout: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import IO, Any

from infra.local.image_store import Writer, change_store, stored_references
from infra.local.settings import cache_folder
from infra.make_command import make_command

PROJECT = Path(__file__).resolve().parents[2]
MODULES = PROJECT / "setup" / "go"
PREFIX = "trainyard.local/operator-"
USER = 65532
"""User id of the program."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def program_reference(name: str) -> str:
    """Return the image name of the program in the Go module setup/go/<name>. Equal sources have equal names."""
    digest = hashlib.sha256()
    for path in sorted((MODULES / name).glob("*")):
        digest.update(path.name.encode() + path.read_bytes())
    return f"{_repository(name)}:{digest.hexdigest()[:16]}"


def is_program(reference: str) -> bool:
    """Return True if this module creates the image."""
    return reference.startswith(PREFIX)


def stored_writer(reference: str) -> Writer:
    """Return the function that writes a stored image as an archive.

    Raise RuntimeError if set-up has not created this image.
    """
    name = reference.removeprefix(PREFIX).partition(":")[0]
    program = cache_folder() / "bin" / name / name
    if reference != program_reference(name) or not is_stored(name) or not program.is_file():
        raise RuntimeError(
            f"image {reference} is not set up; run {make_command('up')}, or `python -m setup --operator={name}`"
        )
    return lambda target: write_archive(reference, program, target)


def is_stored(name: str) -> bool:
    """Return True if the image store has the program's image with its current sources."""
    return program_reference(name) in stored_references()


def store_program(name: str, program: Path) -> None:
    """Add the image of the built `program` to the image store, and remove its earlier images."""
    reference = program_reference(name)
    with (cache_folder() / "images" / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prefix = f"{_repository(name)}:"
        stale = [stored for stored in stored_references() if stored.startswith(prefix) and stored != reference]
        change_store(reference, lambda target: write_archive(reference, program, target), remove=stale)


def write_archive(reference: str, program: Path, target: IO[bytes]) -> None:
    """Write an image with the program as its entrypoint and no other files, as an archive for containerd."""
    layer = _layer(program)
    architecture = ARCHITECTURES[platform.machine()]
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"User": f"{USER}:{USER}", "Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    kind = "application/vnd.oci.image"
    blobs = [layer, json.dumps(config).encode()]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": _descriptor(f"{kind}.config.v1+json", blobs[1]),
        "layers": [_descriptor(f"{kind}.layer.v1.tar", layer)],
    }
    blobs.append(json.dumps(manifest).encode())
    entry = {
        **_descriptor(manifest["mediaType"], blobs[2]),
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"io.containerd.image.name": reference},
    }
    with tarfile.open(fileobj=target, mode="w|") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for blob in blobs:
            _add(archive, f"blobs/sha256/{_digest(blob).partition(':')[2]}", blob)


def _repository(name: str) -> str:
    return f"{PREFIX}{name}"


def _layer(program: Path) -> bytes:
    """Return a layer with one file. Its bytes depend only on the program's name and content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        _add(layer, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _descriptor(media_type: Any, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))
