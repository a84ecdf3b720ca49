"""Checkpoints of a run: save in the background, load the newest, and delete old ones by number and age."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trainer.distributed import local_part, with_local_part
from trainer.exit_codes import DataError, DivergedError, StorageError, TrainerError
from trainer.runtime.base import Runtime
from trainer.storage import Folder, MissingFileError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.metadata import Metadata

Tensors = dict[str, torch.Tensor]
WRITER_NICE = 10
"""Niceness of the thread that writes. On a core that training also needs, training gets nine tenths of the time."""
CHECKPOINT_NAME = re.compile(r"step-(\d{9})")

Facts = dict[str, Any]
"""The values of a checkpoint that are not tensors: numbers and text, nested in dicts and lists."""


class HostCopies:
    """Copies of tensors in host memory. Each save reuses the memory, because allocating takes longer than copying."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._on_cuda else None  # type: ignore[no-untyped-call]  # torch has no type
        # A new thread uses GPU 0 by default, so the threads of all ranks would occupy memory on GPU 0.
        self._thread = ThreadPoolExecutor(1, "copy", (lambda: torch.cuda.set_device(device)) if self._stream else None)
        self._copies: Tensors = {}

    def start(self, tensors: Tensors) -> Future[Tensors]:
        """Start to copy the tensors and return the future copies. No tensor may change until the copy is done.

        The copies overwrite those of the previous call. On CUDA the device must have finished computing the tensors,
        because a separate stream copies them.
        """
        return self._thread.submit(self._copy, tensors)

    @torch.no_grad()
    def _copy(self, tensors: Tensors) -> Tensors:
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            self._copies = {
                name: self._destination(name, part := local_part(tensor)).copy_(part, non_blocking=self._on_cuda)
                for name, tensor in tensors.items()
            }
        if self._stream:
            self._stream.synchronize()
        return {name: with_local_part(tensors[name], copy) for name, copy in self._copies.items()}

    def _destination(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return memory for a copy: that of the previous copy if shape and type are the same, else new memory."""
        memory = self._copies.get(name)
        if memory is None or (memory.shape, memory.dtype) != (tensor.shape, tensor.dtype):
            memory = torch.empty_like(tensor, device="cpu", pin_memory=self._on_cuda)
        return memory


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """The content of a checkpoint."""

    tensors: Tensors
    """Every tensor by name. Only one rank writes a tensor that all ranks share."""
    facts: Facts
    """All other values, such as step and signature. A save writes the values of rank 0."""


class SaveHooks:
    """Callbacks of a save, which run in the background. The methods of this base class do nothing."""

    def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Raise DivergedError for a tensor from which no run should resume. The error ends the save on all ranks."""

    def verify_lease(self) -> None:
        """Raise an error if this run may no longer change the folder.

        A save calls this at its start, before it writes the manifest, and before it deletes files.
        """

    def manifest_written(self) -> None:
        """Handle a complete checkpoint."""


class Checkpoints(SaveHooks):
    """The checkpoints of one run, with one folder per step.

    Every rank creates an instance and calls its methods at the same step, because the ranks save and load together.
    """

    def __init__(self, folder: Folder, runtime: Runtime, *, keep: int, keep_hours: float = 0.0) -> None:
        self.folder = folder
        self._runtime = runtime
        self._keep, self._keep_seconds = keep, keep_hours * 3600
        self._copies = HostCopies(runtime.device)
        # On Linux, nice changes only the calling thread: https://man7.org/linux/man-pages/man2/nice.2.html.
        self._thread = ThreadPoolExecutor(1, "checkpoint", initializer=os.nice, initargs=(WRITER_NICE,))
        self._copy: Future[Tensors] | None = None
        self._save: Future[Metadata] | None = None
        self.saving_step, self.saving_since = 0, 0.0
        """Step of the last save, and its start in seconds of the monotonic clock."""
        self._rejected: set[str] = set()
        """Names of checkpoints that the last resume rejected and that no save has replaced."""

    def save(self, step: int, saved: SavedState) -> None:
        """Copy the state and write it, both in the background. First wait for the previous save, as `wait` does.

        The tensors must not change until `wait_for_copies` returns. On CUDA the device must have finished computing
        them.
        """
        # Imported at the first save, so that the import does not delay the first step.
        from torch.distributed.checkpoint.state_dict_saver import save as write

        from trainer.checkpoints.tensor_files import TensorFilesWriter

        self.wait()
        self.saving_step, self.saving_since = step, time.monotonic()
        folder = self.folder.child(checkpoint_name(step))
        writer = TensorFilesWriter(folder, saved.facts, rank=self._runtime.rank, hooks=self)
        group, is_single = self._runtime.saving_group(), self._runtime.world == 1
        # torch's async_save would first inspect each tensor in the training thread.
        copying = self._copy = self._copies.start(dict(saved.tensors))
        self._save = self._thread.submit(
            lambda: write(copying.result(), storage_writer=writer, process_group=group, no_dist=is_single)
        )

    def manifest_written(self) -> None:
        """Delete old checkpoints."""
        self._rejected.discard(checkpoint_name(self.saving_step))
        self._delete_old(before=self.saving_step)

    def wait_for_copies(self) -> None:
        """Wait until the tensors given to `save` may change."""
        if self._copy is not None:
            copying, self._copy = self._copy, None
            copying.result()

    def wait(self) -> None:
        """Wait until the last save is complete.

        If the save failed, raises the error of the lowest failed rank on all ranks, such as StorageError or an error
        that `check_tensor` or `verify_lease` raised.
        """
        from torch.distributed.checkpoint.api import CheckpointException

        from trainer.checkpoints.tensor_files import is_complete

        if self._save is None:
            return
        saving, self._save, self._copy = self._save, None, None
        try:
            self._runtime.wait_for(saving)
        except CheckpointException as error:
            cause = root_cause(error)
            if isinstance(cause, DivergedError) and self._runtime.rank == 0:
                # Delete the unfinished folder, unless it still holds an earlier complete checkpoint of this step. Do
                # not report a failed deletion, because a folder without a manifest is not a checkpoint.
                name = checkpoint_name(self.saving_step)
                with suppress(TrainerError):
                    self.verify_lease()
                    if not is_complete(self.folder.child(name)):
                        self.folder.delete(name)
            raise cause from None

    def load_newest(
        self,
        *,
        check_compatible: Callable[[SavedState], None],
        skipped: Callable[[str, str], None],
        sharded_like: Callable[[str], torch.Tensor | None] = lambda _name: None,
    ) -> SavedState | None:
        """Return the newest complete and compatible checkpoint on every rank, or None if no save ever finished.

        `check_compatible` raises ValueError for a checkpoint that this run cannot resume. `skipped` receives the name
        of each unused checkpoint and the reason. `sharded_like` maps a saved tensor's name to a tensor with the
        required sharding, or None. Raises DataError if saves have finished but no checkpoint is usable, instead of
        starting over. Raises StorageError if the storage fails, instead of using an older checkpoint.
        """
        names = self._runtime.broadcast(self._newest_first() if self._runtime.rank == 0 else [])
        self._rejected = set()
        for name in names:
            folder = self.folder.child(name)
            try:
                return self._load(folder, check_compatible, sharded_like)
            except (ValueError, MissingFileError) as error:
                if not isinstance(error, _IncompleteError):
                    self._rejected.add(name)
                skipped(name, str(error))
            except StorageError as error:
                raise StorageError(
                    f"{error}; no older checkpoint is used, because the failure may be temporary: start again, or move "
                    f"{folder.url} away to resume from the previous checkpoint"
                ) from None
        if rejected := len(self._rejected):
            remedy = "undo a change of the model, or delete them to start over"
            raise DataError(f"{self.folder.url}: none of {rejected} checkpoints can be used; {remedy}")
        return None

    def _load(
        self,
        folder: Folder,
        check_compatible: Callable[[SavedState], None],
        sharded_like: Callable[[str], torch.Tensor | None],
    ) -> SavedState:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_loader import load

        from trainer.checkpoints.tensor_files import TensorFilesReader, destination

        manifest = self._manifest(folder)
        facts = manifest["facts"]
        # Check before allocating memory for the tensors.
        check_compatible(SavedState(tensors=destination(manifest, device="meta"), facts=facts))
        saved = SavedState(tensors=destination(manifest, sharded_like=sharded_like), facts=facts)
        try:
            load(
                saved.tensors,
                storage_reader=TensorFilesReader(folder, manifest, heartbeat=self._runtime.heartbeat),
                process_group=self._runtime.loading_group(),
                no_dist=self._runtime.world == 1,
            )
        except CheckpointException as error:
            raise root_cause(error) from None
        return saved

    def _manifest(self, folder: Folder) -> dict[str, Any]:
        """Read the manifest on rank 0 and return it on every rank."""
        from trainer.checkpoints.tensor_files import read_manifest

        found: dict[str, Any] | Exception = {}
        if self._runtime.rank == 0:
            try:
                found = read_manifest(folder)
            except MissingFileError:
                found = _IncompleteError("it was not finished")
            except (ValueError, StorageError) as error:
                found = error
        found = self._runtime.broadcast(found)
        if isinstance(found, Exception):
            raise found
        return found

    def _delete_old(self, *, before: int) -> None:
        """Delete the checkpoints of earlier steps, except the newest complete ones and recent ones."""
        from trainer.checkpoints.tensor_files import MANIFEST, is_complete

        kept = 1
        for name in self._newest_first():
            if name >= checkpoint_name(before):
                continue
            folder = self.folder.child(name)
            try:
                if kept < self._keep and name not in self._rejected and is_complete(folder):
                    kept += 1
                    continue
                age = folder.age(MANIFEST)
            except StorageError:
                # The state is unknown: neither count nor delete this checkpoint.
                continue
            if age >= self._keep_seconds:
                self.verify_lease()
                # Delete the manifest first, so that a half-deleted checkpoint does not count as complete.
                self.folder.delete(name, first=MANIFEST)

    def _newest_first(self) -> list[str]:
        return sorted((name for name in self.folder.names() if CHECKPOINT_NAME.fullmatch(name)), reverse=True)


def checkpoint_name(step: int) -> str:
    """Return the name of a step's checkpoint. The names sort in the order of the steps."""
    return f"step-{step:09d}"


class _IncompleteError(ValueError):
    """The save of a checkpoint never finished, for example because the run was killed."""


def root_cause(error: CheckpointException) -> BaseException:
    """Return the error of the lowest failed rank, or `error` itself if that rank's error is of an unknown type."""
    failures = error.failures
    cause = failures[min(failures)][0]
    return cause if isinstance(cause, TrainerError | ValueError | RuntimeError | MemoryError) else error
