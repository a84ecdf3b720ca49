"""How torch.distributed.checkpoint keeps tensors in a folder: a file a rank, and a manifest that seals them.

Beside torch's own FsspecWriter this adds a SHA-256 for every tensor, storage failures that name the file, and a
manifest of JSON in place of a pickle, which could run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Callable
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
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from trainer.exit_codes import StorageError
from trainer.storage import DeniedFileError, Folder, MissingFileError

MANIFEST = "checkpoint.json"
"""Written last: a folder without it holds no checkpoint."""
FORMAT = 2
"""Version of manifest and tensor files, raised when an older trainer could not read them."""
Facts = dict[str, Any]
"""What a checkpoint holds beside tensors: numbers and text, nested in dicts and lists."""


class TensorFilesWriter(StorageWriter):
    """Writes one checkpoint: each rank its file, then the coordinating rank the manifest."""

    def __init__(
        self,
        folder: Folder,
        facts: Facts,
        *,
        rank: int,
        sealed: Callable[[], None],
        check: Callable[[str, torch.Tensor], None] = lambda _name, _tensor: None,
        permit: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._facts = facts
        self._check = check
        self._permit = permit
        self._sealed = sealed
        # A new name for each save. A step that is saved again stays whole until its new manifest is written, and a run
        # that has lost the folder cannot overwrite the files of its successor.
        self._file = f"rank-{rank}-{uuid.uuid4().hex[:8]}.tensors"
        self._is_replacing = False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing is kept from one checkpoint to the next."""

    def set_up_storage_writer(self, is_coordinator: bool, *_args: Any, **_kwargs: Any) -> None:
        """Keep a whole checkpoint of this step until the new one is sealed; delete anything else that is there."""
        if not is_coordinator:
            return
        self._permit()
        self._folder.delete_non_folder()
        self._is_replacing = is_whole(self._folder)
        if not self._is_replacing:
            self._folder.clear(first=MANIFEST)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans as they are: torch has shared what all ranks hold alike evenly among them."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's tensors one after the other; what `check` raises at one ends the save on all ranks."""
        results = []
        start = 0
        with self._folder.writing(self._file) as file:
            for item in plan.items:
                tensor = planner.resolve_data(item)
                assert isinstance(tensor, torch.Tensor), f"{item.index.fqn} is no tensor"
                tensor = tensor.detach().cpu()
                self._check(item.index.fqn, tensor)
                content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
                written = 0
                while written < len(content):
                    written += file.write(content[written:])
                digest = hashlib.sha256(content).hexdigest()
                place = {"file": self._file, "start": start, "bytes": len(content), "sha256": digest}
                results.append(WriteResult(index=item.index, size_in_bytes=len(content), storage_data=place))
                start += len(content)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest, call `sealed`, then delete the files that this checkpoint replaces."""
        places = {result.index: result.storage_data for of_rank in results for result in of_rank}
        tensors = {}
        for name, found in metadata.state_dict_metadata.items():
            assert isinstance(found, TensorStorageMetadata)
            tensors[name] = {
                "dtype": str(found.properties.dtype).removeprefix("torch."),
                "size": list(found.size),
                "chunks": [
                    {"offsets": list(chunk.offsets), "sizes": list(chunk.sizes)}
                    | places[MetadataIndex(name, chunk.offsets)]
                    for chunk in found.chunks
                ],
            }
        self._permit()
        self._find({place["file"] for place in places.values()})
        self._folder.write(MANIFEST, seal({"format": FORMAT, "facts": self._facts, "tensors": tensors}))
        self._sealed()
        if self._is_replacing:
            self._permit()
            for name in set(self._folder.names()) - {MANIFEST, *(place["file"] for place in places.values())}:
                self._folder.delete(name)

    def _find(self, files: set[str]) -> None:
        """Raises StorageError where a rank's file is on a disk of its own: nobody could go on from what is sealed."""
        for name in sorted(files) if self._folder.is_local else ():
            try:
                self._folder.facts(name)
            except MissingFileError as error:
                raise StorageError(f"{error}; allowed is a bucket that all hosts share: set --bucket") from None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether torch may choose this class by a name: no."""
        del checkpoint_id
        return False


class TensorFilesReader(StorageReader):
    """Reads one checkpoint; a tensor that is not as it was written raises ValueError."""

    def __init__(self, folder: Folder, manifest: dict[str, Any]) -> None:
        self._folder = folder
        self._metadata = _metadata(manifest)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing is kept from one checkpoint to the next."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """What the manifest says of the tensors."""
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_args: Any, **_kwargs: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read each file once, check its tensors and hand them out."""
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self._metadata.storage_data[item.storage_index]["file"]].append(item)
        for name, items in by_file.items():
            content = memoryview(bytearray(self._folder.read(name)))
            for item in items:
                place = self._metadata.storage_data[item.storage_index]
                stored = self._stored(item.storage_index, content[place["start"] : place["start"] + place["bytes"]])
                for dimension, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                    stored = stored.narrow(dimension, offset, length)
                target = planner.resolve_tensor(item).detach()
                target.copy_(stored)
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether torch may choose this class by a name: no."""
        del checkpoint_id
        return False

    def _stored(self, index: MetadataIndex, content: memoryview) -> torch.Tensor:
        place = self._metadata.storage_data[index]
        if len(content) != place["bytes"]:
            raise ValueError(f"{place['file']} is too short: {index.fqn} has {len(content)} of {place['bytes']} bytes")
        if hashlib.sha256(content).hexdigest() != place["sha256"]:
            raise ValueError(f"the checksum of {index.fqn} in {place['file']} is wrong")
        found = self._metadata.state_dict_metadata[index.fqn]
        assert isinstance(found, TensorStorageMetadata)
        if not len(content):
            return torch.empty(place["sizes"], dtype=found.properties.dtype)
        return torch.frombuffer(content, dtype=found.properties.dtype).view(place["sizes"])


def destination(manifest: dict[str, Any], *, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Empty tensors for all that a checkpoint holds; on `meta` they take no memory."""
    metadata = _metadata(manifest).state_dict_metadata
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
        sizes = folder.sizes()
        if MANIFEST not in sizes:
            return False
        manifest = unseal(folder.read(MANIFEST))
        places = _metadata(manifest).storage_data.values()
        is_of_step = folder.url.endswith(f"/step-{manifest['facts']['step']:09d}")
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, MissingFileError, DeniedFileError):
        return False
    return is_of_step and all(sizes.get(place["file"], -1) >= place["start"] + place["bytes"] for place in places)


def _metadata(manifest: dict[str, Any]) -> Metadata:
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
