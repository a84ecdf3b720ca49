"""The manifest of a checkpoint: JSON with a checksum, which names each tensor's place in the files."""

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
"""Written last: a folder without it holds no checkpoint."""
FORMAT = 2
"""Version of manifest and tensor files, raised when an older trainer could not read them."""
Facts = dict[str, Any]
"""What a checkpoint holds beside tensors: numbers and text, nested in dicts and lists."""


def destination(manifest: dict[str, Any], *, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Empty tensors for all that a checkpoint holds; on `meta` they take no memory."""
    metadata = read_metadata(manifest).state_dict_metadata
    return {
        name: torch.empty(found.size, dtype=found.properties.dtype, device=device)
        for name, found in metadata.items()
        if isinstance(found, TensorStorageMetadata)
    }


def seal(manifest: dict[str, Any]) -> bytes:
    """The file of a manifest: its checksum on the first line, then JSON."""
    content = json.dumps(manifest).encode("ascii")
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def unseal(file: bytes) -> dict[str, Any]:
    """The manifest in a file; raises ValueError saying what is wrong with it."""
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


def is_whole(folder: Folder) -> bool:
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
    # A listing may lag behind the files, as on NFS: ask for a file before it counts as missing.
    return is_of_step and all(
        sizes.get(name, -1) >= size or _has_size(folder, name, size) for name, size in needed.items()
    )


def _has_size(folder: Folder, name: str, size: int) -> bool:
    try:
        return folder.facts(name).size >= size
    except (MissingFileError, DeniedFileError):
        return False


def read_metadata(manifest: dict[str, Any]) -> Metadata:
    """The manifest in torch's words; raises ValueError where a tensor's parts do not make it up."""
    tensors: dict[str, Any] = {}
    places = {}
    for name, found in manifest["tensors"].items():
        chunks = [
            ChunkStorageMetadata(offsets=torch.Size(chunk["offsets"]), sizes=torch.Size(chunk["sizes"]))
            for chunk in found["chunks"]
        ]
        properties = TensorProperties(dtype=getattr(torch, found["dtype"]))
        tensors[name] = TensorStorageMetadata(properties=properties, size=torch.Size(found["size"]), chunks=chunks)
        _check_parts(name, tensors[name])
        for part, chunk in zip(chunks, found["chunks"], strict=True):
            place = {**chunk, "start": int(chunk["start"]), "bytes": int(chunk["bytes"])}
            if place["start"] < 0:
                raise ValueError(f"a part of {name} starts before its file, at {place['start']}")
            if place["bytes"] != prod(part.sizes) * properties.dtype.itemsize:
                raise ValueError(f"a part of {name} has {prod(part.sizes)} numbers in {place['bytes']} bytes")
            places[MetadataIndex(name, part.offsets)] = place
    return Metadata(tensors, storage_data=places)


def _check_parts(name: str, tensor: TensorStorageMetadata) -> None:
    """Raise ValueError for parts that lie outside of their tensor, or leave numbers of it without a value."""
    for part in tensor.chunks:
        edges = zip(part.offsets, part.sizes, tensor.size, strict=False)
        inside = all(0 <= offset <= offset + length <= size for offset, length, size in edges)
        if not inside or not len(part.offsets) == len(part.sizes) == len(tensor.size):
            raise ValueError(f"a part of {name} lies outside of it")
    there, needed = sum(prod(part.sizes) for part in tensor.chunks), prod(tensor.size)
    if there != needed:
        raise ValueError(f"the parts of {name} have {there} numbers, not {needed}")
