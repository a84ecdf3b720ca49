"""OCI image layout on disk (image-spec v1.1) that frees the space of layers which every node has unpacked.

The layout's folder keeps the digests of those layers. Archives omit them, even if the tool that writes the layout
creates the same layer again for a later image.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from io import BytesIO
from pathlib import Path
from typing import IO, Any

LARGE_BYTES = 50_000_000


def blob(layout: Path, digest: str) -> Path:
    """Return the path of the blob `digest` (`sha256:<hex>`)."""
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


def manifest_of(layout: Path, reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return descriptor and manifest of the image `reference`. Raise KeyError if the layout does not have it."""
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    for descriptor in index["manifests"]:
        if descriptor.get("annotations", {}).get("org.opencontainers.image.ref.name") == reference:
            manifest: dict[str, Any] = json.loads(blob(layout, descriptor["digest"]).read_text(encoding="utf-8"))
            return descriptor, manifest
    raise KeyError(f"no image {reference} in {layout}")


def has(layout: Path, reference: str) -> bool:
    """Return True if the layout has the image `reference`."""
    try:
        manifest_of(layout, reference)
    except (KeyError, FileNotFoundError):
        return False
    return True


def unpacked_layers(layout: Path) -> list[str]:
    """Return the digests of the layers that every node has unpacked."""
    try:
        return list(json.loads((layout / "unpacked.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []


def empty_large_layers(layout: Path, reference: str) -> list[str]:
    """Remove the image's large layers, which nodes must have unpacked. Return those that were not known before.

    An empty sparse file replaces each layer. Its name is that of the layer's uncompressed content. The tool that writes
    the layout (containers/image, `TryReusingBlob`) first looks for that name. It then assumes that the layer is
    written, and uses that name in the next image with the layer.
    """
    _, manifest = manifest_of(layout, reference)
    config = json.loads(blob(layout, manifest["config"]["digest"]).read_text(encoding="utf-8"))
    known = unpacked_layers(layout)
    large = {
        layer["digest"]: (content, layer["size"])
        for layer, content in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        if layer["size"] > LARGE_BYTES and layer["digest"] != content
    }
    now_known = dict.fromkeys([*known, *large, *(content for content, _ in large.values())])
    (layout / "unpacked.json").write_text(json.dumps(list(now_known)), encoding="utf-8")
    for digest, (content, size) in large.items():
        blob(layout, content).touch()
        os.truncate(blob(layout, content), size)
        blob(layout, digest).unlink(missing_ok=True)
    return [digest for digest in large if digest not in known]


def chains_left_out(layout: Path, reference: str) -> set[str]:
    """Return the chain ids (containerd's names) of the unpacked layers that the image's archive omits.

    Rule: https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md#layer-chainid
    """
    _, manifest = manifest_of(layout, reference)
    config = json.loads(blob(layout, manifest["config"]["digest"]).read_text(encoding="utf-8"))
    left_out = set(unpacked_layers(layout))
    found, chain = set(), ""
    for layer, content in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        chain = f"sha256:{hashlib.sha256(f'{chain} {content}'.encode()).hexdigest()}" if chain else content
        if layer["digest"] in left_out:
            found.add(chain)
    return found


def write_archive(layout: Path, reference: str, target: IO[bytes]) -> None:
    """Write the image as an OCI archive without the layers that every node has unpacked."""
    descriptor, manifest = manifest_of(layout, reference)
    digests = [descriptor["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    named = {**descriptor, "annotations": {"io.containerd.image.name": reference}}
    index = {"schemaVersion": 2, "manifests": [named]}
    left_out = set(unpacked_layers(layout))
    with tarfile.open(fileobj=target, mode="w|") as archive:
        for name, text in (("oci-layout", '{"imageLayoutVersion": "1.0.0"}'), ("index.json", json.dumps(index))):
            _add_text(archive, name, text)
        for digest in dict.fromkeys(digests):
            if digest not in left_out:
                path = blob(layout, digest)
                archive.add(path, arcname=str(path.relative_to(layout)))


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, BytesIO(content))
