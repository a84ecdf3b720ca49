"""Write and read a checkpoint's tensors for torch.distributed.checkpoint: one file per rank, and one manifest for all.

Unlike torch's FsspecWriter, this module stores a SHA-256 of every tensor, and its storage errors name the file. The
manifest is JSON, because torch's pickle could run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
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

from trainer.checkpoints.checkpoint import Facts, SaveHooks, checkpoint_name
from trainer.distributed import local_part, with_local_part
from trainer.exit_codes import StorageError
from trainer.storage import Folder, MissingFileError, write_all

MANIFEST = "checkpoint.json"
"""Manifest file, written last: a folder without it is not a checkpoint."""
FORMAT = 2
"""Version of the manifest and the tensor files. Raise it for a change that an older trainer cannot read."""
MAX_READ_BYTES = 32 * 2**20
"""Maximum bytes to read from a file at once, to save memory. A single larger tensor is also read at once."""


def destination(
    manifest: dict[str, Any],
    *,
    device: str = "cpu",
    sharded_like: Callable[[str], torch.Tensor | None] = lambda _name: None,
) -> dict[str, torch.Tensor]:
    """Return an uninitialised tensor for each tensor in a checkpoint. On the device `meta` they use no memory.

    `sharded_like` returns a tensor for a name, or None. If that tensor has the saved size, allocate only this rank's
    part.
    """
    tensors = {}
    for name, found in read_metadata(manifest).state_dict_metadata.items():
        assert isinstance(found, TensorStorageMetadata)
        like = sharded_like(name)
        if like is None or like.shape != found.size:
            like = None
        size = found.size if like is None else local_part(like).shape
        empty = torch.empty(size, dtype=found.properties.dtype, device=device)
        tensors[name] = empty if like is None else with_local_part(like, empty)
    return tensors


def encode_manifest(manifest: dict[str, Any]) -> bytes:
    """Return the content of the manifest file: the checksum on the first line, then JSON."""
    content = json.dumps(manifest).encode("ascii")
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def decode_manifest(file: bytes) -> dict[str, Any]:
    """Return the manifest in a file. Raises ValueError with the defect."""
    digest, _, content = file.partition(b"\n")
    if not file:
        raise ValueError(f"{MANIFEST} is empty")
    if hashlib.sha256(content).hexdigest().encode("ascii") != digest:
        raise ValueError(f"the checksum of {MANIFEST} is wrong")
    manifest = cast("dict[str, Any]", json.loads(content))
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format is {manifest['format']}, not {FORMAT}")
    return manifest


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Return the manifest of a checkpoint. Raises ValueError with the defect, or StorageError."""
    manifest = decode_manifest(folder.read(MANIFEST))
    step = manifest["facts"]["step"]
    if not folder.url.endswith(f"/{checkpoint_name(step)}"):
        # A copy under a later name would be the newest checkpoint at every resume.
        raise ValueError(f"it is a copy of step {step}")
    return manifest


def is_complete(folder: Folder) -> bool:
    """Return True if the manifest is valid and no file is missing or shorter than the manifest says.

    Does not read tensors, so it does not detect a changed byte. Raises StorageError if the storage fails.
    """
    needed: dict[str, int] = {}
    try:
        for place in chain.from_iterable(found["chunks"] for found in read_manifest(folder)["tensors"].values()):
            needed[place["file"]] = max(needed.get(place["file"], 0), place["start"] + place["bytes"])
        return all(folder.facts(name).size >= size for name, size in needed.items())
    except (ValueError, MissingFileError):
        return False


def read_metadata(manifest: dict[str, Any]) -> Metadata:
    """Return the manifest as torch's Metadata."""
    tensors: dict[str, Any] = {}
    places = {}
    for name, found in manifest["tensors"].items():
        chunks = [
            ChunkStorageMetadata(offsets=torch.Size(chunk["offsets"]), sizes=torch.Size(chunk["sizes"]))
            for chunk in found["chunks"]
        ]
        properties = TensorProperties(dtype=getattr(torch, found["dtype"]))
        tensors[name] = TensorStorageMetadata(properties=properties, size=torch.Size(found["size"]), chunks=chunks)
        places.update({MetadataIndex(name, torch.Size(chunk["offsets"])): chunk for chunk in found["chunks"]})
    return Metadata(tensors, storage_data=places)


class _UnchangedPlans:
    """Methods of torch's storage interface that do nothing here."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing, because each object writes or reads only one checkpoint."""

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        """Return the plans unchanged: torch has already divided shared tensors evenly among the ranks."""
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return False, so that torch never selects this class for a checkpoint's ID."""
        del checkpoint_id
        return False


class TensorFilesWriter(_UnchangedPlans, StorageWriter):
    """Writer of one checkpoint: each rank writes its file, then the coordinator writes the manifest."""

    def __init__(self, folder: Folder, facts: Facts, *, rank: int, hooks: SaveHooks) -> None:
        self._folder, self._facts, self._hooks = folder, facts, hooks
        # Use a new name for each save. If a step is saved again, its first checkpoint stays complete until the manifest
        # is replaced. A run that has lost the lease also cannot overwrite the files of its successor.
        self._file = f"rank-{rank}-{uuid.uuid4().hex[:8]}.tensors"
        self._is_replacing = False

    def set_up_storage_writer(self, is_coordinator: bool, *_args: Any, **_kwargs: Any) -> None:
        """Delete the files of an incomplete checkpoint of this step. `finish` deletes those of a complete one."""
        if not is_coordinator:
            return
        self._hooks.verify_lease()
        self._is_replacing = is_complete(self._folder)
        if not self._is_replacing:
            for name in sorted(self._folder.names(), key=lambda name: name != MANIFEST):
                self._folder.delete(name)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's tensors one after the other."""
        results = []
        start = 0
        with self._folder.writing(self._file) as file:
            for item in plan.items:
                tensor = planner.resolve_data(item)
                assert isinstance(tensor, torch.Tensor), f"{item.index.fqn} is not a tensor"
                tensor = local_part(tensor).detach().cpu()
                self._hooks.check_tensor(item.index.fqn, tensor)
                content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
                write_all(file, content)
                digest = hashlib.sha256(content).hexdigest()
                place = {"file": self._file, "start": start, "bytes": len(content), "sha256": digest}
                results.append(WriteResult(index=item.index, size_in_bytes=len(content), storage_data=place))
                start += len(content)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest, call `manifest_written`, then delete the files that this checkpoint replaces."""
        places = {result.index: result.storage_data for rank_results in results for result in rank_results}
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
        self._hooks.verify_lease()
        self._require_files({place["file"] for place in places.values()})
        self._folder.write(MANIFEST, encode_manifest({"format": FORMAT, "facts": self._facts, "tensors": tensors}))
        self._hooks.manifest_written()
        if self._is_replacing:
            self._hooks.verify_lease()
            for name in set(self._folder.names()) - {MANIFEST, *(place["file"] for place in places.values())}:
                self._folder.delete(name)

    def _require_files(self, files: set[str]) -> None:
        """Raise StorageError if a file is on another host's disk, because no run could resume from that checkpoint."""
        for name in sorted(files) if self._folder.is_local else ():
            try:
                self._folder.facts(name)
            except MissingFileError as error:
                raise StorageError(
                    f"{error}; checkpoints must be in a bucket that all hosts share: set --bucket"
                ) from None


class TensorFilesReader(_UnchangedPlans, StorageReader):
    """Reader of one checkpoint. Raises ValueError for a tensor that has changed since it was written."""

    def __init__(
        self, folder: Folder, manifest: dict[str, Any], *, heartbeat: Callable[[], None] = lambda: None
    ) -> None:
        self._folder, self._heartbeat = folder, heartbeat
        self._metadata = read_metadata(manifest)

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the files piece by piece, check each tensor and copy it to its destination."""
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self._place(item)["file"]].append(item)
        for name, items in by_file.items():
            self._check_size(name, items)
            for piece in self._pieces(items):
                # All pieces together may take longer than the watchdog's time-out.
                self._heartbeat()
                self._read_piece(name, piece, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _place(self, item: ReadItem) -> dict[str, Any]:
        return cast("dict[str, Any]", self._metadata.storage_data[item.storage_index])

    def _check_size(self, name: str, items: list[ReadItem]) -> None:
        """Raise ValueError if the file is too short for its tensors, because a bucket rejects a read past the end."""
        size = self._folder.facts(name).size
        for item in items:
            place = self._place(item)
            available = max(0, size - place["start"])
            if available < place["bytes"]:
                tensor = item.storage_index.fqn
                raise ValueError(f"{name} is too short: {tensor} has {available} of {place['bytes']} bytes")

    def _pieces(self, items: list[ReadItem]) -> Iterator[list[ReadItem]]:
        """Yield the tensors of a file in groups of at most MAX_READ_BYTES. A larger tensor is its own group."""
        piece: list[ReadItem] = []
        for item in sorted(items, key=lambda item: cast("int", self._place(item)["start"])):
            place = self._place(item)
            if piece and place["start"] + place["bytes"] - self._place(piece[0])["start"] > MAX_READ_BYTES:
                yield piece
                piece = []
            piece.append(item)
        yield piece

    def _read_piece(self, name: str, items: list[ReadItem], planner: LoadPlanner) -> None:
        start = self._place(items[0])["start"]
        size = max(self._place(item)["start"] + self._place(item)["bytes"] for item in items) - start
        content = memoryview(bytearray(self._folder.read_part(name, start, size) if size else b""))
        for item in items:
            place = self._place(item)
            stored = self._stored(item.storage_index, content[place["start"] - start :][: place["bytes"]])
            for dimension, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                stored = stored.narrow(dimension, offset, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(stored)
            planner.commit_tensor(item, target)

    def _stored(self, index: MetadataIndex, content: memoryview) -> torch.Tensor:
        place = self._metadata.storage_data[index]
        if hashlib.sha256(content).hexdigest() != place["sha256"]:
            raise ValueError(f"the checksum of {index.fqn} in {place['file']} is wrong")
        found = self._metadata.state_dict_metadata[index.fqn]
        assert isinstance(found, TensorStorageMetadata)
        if not len(content):
            return torch.empty(place["sizes"], dtype=found.properties.dtype)
        return torch.frombuffer(content, dtype=found.properties.dtype).view(place["sizes"])
