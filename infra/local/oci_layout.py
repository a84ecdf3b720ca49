"""An OCI image layout on disk (image-spec v1.1) whose large layers give their space back once nodes have unpacked them.

A layer that every receiver has unpacked is never read again, but the tool that writes the layout skips a layer only
while a file of its digest and size is there. So such a layer is kept as a sparse file of the same size, and is left out
of the archives that `write_archive` makes.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import IO, Any

LARGE_BYTES = 50_000_000


def blob(layout: Path, digest: str) -> Path:
    """The file of `digest` (`sha256:<hex>`)."""
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


def is_hollow(path: Path) -> bool:
    """Whether the file's content was given back."""
    status = path.stat()
    return status.st_size > LARGE_BYTES and status.st_blocks == 0


def manifest_of(layout: Path, reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Descriptor and manifest of the image called `reference`; KeyError where the layout has none."""
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    for descriptor in index["manifests"]:
        if descriptor.get("annotations", {}).get("org.opencontainers.image.ref.name") == reference:
            manifest: dict[str, Any] = json.loads(blob(layout, descriptor["digest"]).read_text(encoding="utf-8"))
            return descriptor, manifest
    raise KeyError(f"no image {reference} in {layout}")


def hollow_layers(layout: Path, reference: str) -> list[str]:
    """Give back the space of the image's large layers; returns the digests of all its large layers."""
    _, manifest = manifest_of(layout, reference)
    large = [layer["digest"] for layer in manifest["layers"] if layer["size"] > LARGE_BYTES]
    for digest in large:
        path = blob(layout, digest)
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(0)
            file.truncate(size)
    return large


def write_archive(layout: Path, reference: str, target: IO[bytes]) -> None:
    """Write the image as an OCI archive without its hollow layers."""
    descriptor, manifest = manifest_of(layout, reference)
    digests = [descriptor["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    named = {**descriptor, "annotations": {"io.containerd.image.name": reference}}
    index = {"schemaVersion": 2, "manifests": [named]}
    with tarfile.open(fileobj=target, mode="w|") as archive:
        for name, text in (("oci-layout", '{"imageLayoutVersion": "1.0.0"}'), ("index.json", json.dumps(index))):
            _add_text(archive, name, text)
        for digest in dict.fromkeys(digests):
            path = blob(layout, digest)
            if not is_hollow(path):
                archive.add(path, arcname=str(path.relative_to(layout)))


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    from io import BytesIO

    content = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, BytesIO(content))
