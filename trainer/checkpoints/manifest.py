"""The manifest of a checkpoint: JSON with a checksum that locates each tensor in the files."""

from __future__ import annotations

import hashlib
import json
from math import prod
from typing import Any, cast

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from trainer.storage import DeniedFileError, Folder, MissingFileError

MANIFEST = "checkpoint.json"
"""Written last: a folder without it is not a checkpoint."""
FORMAT = 2
"""Version of the manifest and tensor files, raised if an older trainer cannot read them."""
Facts = dict[str, Any]
"""All values that are not tensors: numbers and text, nested in dicts and lists."""


def destination(manifest: dict[str, Any], *, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Return empty tensors for everything in a checkpoint. On `meta` they use no memory."""
    metadata = read_metadata(manifest).state_dict_metadata
    return {
        name: torch.empty(found.size, dtype=found.properties.dtype, device=device)
        for name, found in metadata.items()
        if isinstance(found, TensorStorageMetadata)
    }


def seal(manifest: dict[str, Any]) -> bytes:
    """Return the content of the manifest file: the checksum on the first line, then JSON."""
    content = json.dumps(manifest).encode("ascii")
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def unseal(file: bytes) -> dict[str, Any]:
    """Return the manifest in a file. Raises ValueError with the defect."""
    digest, _, content = file.partition(b"\n")
    if not file:
        raise ValueError(f"{MANIFEST} is empty")
    if hashlib.sha256(content).hexdigest().encode("ascii") != digest:
        raise ValueError(f"the checksum of {MANIFEST} is wrong")
    manifest: Any = json.loads(content)
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise ValueError(f"its format is {found}, not {FORMAT}")
    return cast("dict[str, Any]", manifest)


def is_complete(folder: Folder) -> bool:
    """Return True if the manifest is valid and no file is missing or shorter than the manifest says.

    Reads no tensors: only a resume finds a changed byte. Raises StorageError if the storage fails.
    """
    try:
        manifest = unseal(folder.read(MANIFEST))
        places = read_metadata(manifest).storage_data.values()
        is_of_step = folder.url.endswith(f"/step-{manifest['facts']['step']:09d}")
        sizes = folder.sizes()
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, MissingFileError, DeniedFileError):
        return False
    needed: dict[str, int] = {}
    for place in places:
        needed[place["file"]] = max(needed.get(place["file"], 0), place["start"] + place["bytes"])
    # A listing may lag behind the files, for example on NFS: ask for the file itself before it counts as missing.
    return is_of_step and all(
        sizes.get(name, -1) >= size or _has_size(folder, name, size) for name, size in needed.items()
    )


def _has_size(folder: Folder, name: str, size: int) -> bool:
    try:
        return folder.facts(name).size >= size
    except (MissingFileError, DeniedFileError):
        return False


def read_metadata(manifest: dict[str, Any]) -> Metadata:
    """Return the manifest as torch's Metadata. Raises ValueError if the chunks of a tensor do not cover it."""
    tensors: dict[str, Any] = {}
    places = {}
    for name, found in manifest["tensors"].items():
        chunks = [
            ChunkStorageMetadata(offsets=torch.Size(chunk["offsets"]), sizes=torch.Size(chunk["sizes"]))
            for chunk in found["chunks"]
        ]
        properties = TensorProperties(dtype=getattr(torch, found["dtype"]))
        tensors[name] = TensorStorageMetadata(properties=properties, size=torch.Size(found["size"]), chunks=chunks)
        covered, size = sum(prod(part.sizes) for part in chunks), prod(tensors[name].size)
        if covered != size:
            raise ValueError(f"the parts of {name} have {covered} numbers, not {size}")
        for part, chunk in zip(chunks, found["chunks"], strict=True):
            places[MetadataIndex(name, part.offsets)] = chunk
    return Metadata(tensors, storage_data=places)
