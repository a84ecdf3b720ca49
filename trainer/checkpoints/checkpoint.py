"""Checkpoints of a run: saved beside the training, kept by number and age; the newest whole one is found by looking."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainer.checkpoints.copies import HostCopies, Tensors
from trainer.exit_codes import DataError, DivergedError, StorageError, TrainerError
from trainer.runtime.base import Runtime
from trainer.storage import DeniedFileError, Folder, MissingFileError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.metadata import Metadata

    from trainer.checkpoints.manifest import Facts

NAME = re.compile(r"step-(\d{9})")


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a checkpoint holds."""

    tensors: Tensors
    """Every tensor by its name; what all ranks hold alike is written once."""
    facts: Facts
    """Step, signature, place in the data and whatever else is no tensor; the same on all ranks."""


class Checkpoints:
    """The checkpoints of one run: a folder a step.

    Every rank makes one and calls its methods at the same step: they save and load together.
    """

    def __init__(
        self,
        folder: Folder,
        runtime: Runtime,
        *,
        keep: int,
        keep_hours: float = 0.0,
        check: Callable[[int, str, torch.Tensor], None] = lambda _step, _name, _tensor: None,
        permit: Callable[[], None] = lambda: None,
        on_saved: Callable[[int, str, float], None] = lambda _step, _url, _seconds: None,
    ) -> None:
        """`check` is given the step, name and copy of each tensor beside the training, by the rank that writes it.

        It raises DivergedError for a state that is not worth going on from: `wait` does then, and nothing of it stays.
        `permit` is called before anything is removed and before a checkpoint is sealed: what it raises ends the save.
        """
        self.folder = folder
        self._runtime = runtime
        self._keep, self._keep_seconds = keep, keep_hours * 3600
        self._check, self._permit, self._on_saved = check, permit, on_saved
        self._copies = HostCopies(runtime.device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._copying: Future[Tensors] | None = None
        self._saving: Future[Metadata] | None = None
        self._saving_name = ""
        self._rejected: set[str] = set()
        """Names of checkpoints that the last resume could not use and that were not saved again since."""

    def save(self, step: int, saved: Saved) -> None:
        """Copy the state and write it, both in the background; waits where the save before is not done.

        Until `copied` has come back no tensor may change that was given. On CUDA the device must have made them: they
        are copied in a stream of their own.

        Raises StorageError, on all ranks, where the save before failed on any.
        """
        # Imported at the first save and not before the first step.
        from torch.distributed.checkpoint.state_dict_saver import save as write

        from trainer.checkpoints.tensor_files import TensorFilesWriter

        self.wait()
        started = time.monotonic()
        name = self._saving_name = f"step-{step:09d}"
        folder = self.folder.child(name)

        def sealed() -> None:
            self._rejected.discard(name)
            self._on_saved(step, folder.url, time.monotonic() - started)
            self._delete_old(before=step)

        check, rank = partial(self._check, step), self._runtime.rank
        writer = TensorFilesWriter(folder, saved.facts, rank=rank, sealed=sealed, check=check, permit=self._permit)
        group, alone = self._runtime.background_group(), self._runtime.world == 1
        # Not torch's async_save, which is this and looks at each tensor first, in the training's own thread.
        copying = self._copying = self._copies.start(dict(saved.tensors))
        self._saving = self._thread.submit(
            lambda: write(copying.result(), storage_writer=writer, process_group=group, no_dist=alone)
        )

    def copied(self) -> None:
        """Wait until what was given to `save` may change."""
        if self._copying is not None:
            copying, self._copying = self._copying, None
            copying.result()

    def wait(self) -> None:
        """Wait until what was saved last is whole; raises StorageError, on all ranks, where it failed on any.

        So it does DivergedError, where `check` did.
        """
        from torch.distributed.checkpoint.api import CheckpointException

        if self._saving is None:
            return
        saving, self._saving, self._copying = self._saving, None, None
        try:
            self._runtime.wait_for(saving)
        except CheckpointException as error:
            cause = _cause(error)
            if isinstance(cause, DivergedError) and self._runtime.rank == 0:
                # Without a seal the rest is not a checkpoint either: report the divergence and not this.
                with suppress(TrainerError):
                    self._delete_unsealed(self._saving_name)
            raise cause from None

    def _delete_unsealed(self, name: str) -> None:
        """Delete what a failed save left, unless the folder holds a whole checkpoint of before."""
        from trainer.checkpoints.manifest import is_whole

        self._permit()
        if not is_whole(self.folder.child(name)):
            self.folder.delete(name)

    def newest(self, *, fits: Callable[[Saved], None], skipped: Callable[[str, str], None]) -> Saved | None:
        """The newest checkpoint that is whole and fits, on every rank; None where there never was one.

        `fits` raises ValueError for one that this run cannot go on from. One that is not used is reported to `skipped`
        with its name and the reason. Raises DataError where none of several can be used: starting again from nothing
        would hide the loss; and StorageError where the storage fails: going back for what may pass would, too.
        """
        names = self._runtime.share(self._newest_first() if self._runtime.rank == 0 else [])
        self._rejected = set()
        for name in names:
            folder = self.folder.child(name)
            try:
                return self._load(folder, fits)
            except _NotSealedError as error:
                skipped(name, str(error))
            except (ValueError, MissingFileError, DeniedFileError) as error:
                self._rejected.add(name)
                skipped(name, str(error))
            except StorageError as error:
                raise StorageError(
                    f"{error}; no older checkpoint is used, for this may pass: start again, or move {folder.url} away "
                    "to go on from the one before"
                ) from None
        if rejected := len(self._rejected):
            raise DataError(f"{self.folder.url}: none of {rejected} checkpoints can be used; move them to start over")
        return None

    def _load(self, folder: Folder, fits: Callable[[Saved], None]) -> Saved:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_loader import load

        from trainer.checkpoints.manifest import destination
        from trainer.checkpoints.tensor_files import TensorFilesReader

        manifest = self._manifest(folder)
        try:
            facts = manifest["facts"]
            # Before there is memory for what a manifest may say wrongly.
            fits(Saved(tensors=destination(manifest, device="meta"), facts=facts))
            if (step := facts["step"]) != _step(folder.url.rpartition("/")[2]):
                raise ValueError(f"it is of step {step}")
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise ValueError(f"its manifest is none of this trainer: {type(error).__name__} {error}") from None
        saved = Saved(tensors=destination(manifest), facts=facts)
        try:
            load(
                saved.tensors,
                storage_reader=TensorFilesReader(folder, manifest),
                process_group=self._runtime.background_group(),
                no_dist=self._runtime.world == 1,
            )
        except CheckpointException as error:
            raise _cause(error) from None
        return saved

    def _manifest(self, folder: Folder) -> dict[str, Any]:
        """The manifest, read by one rank for all."""
        from trainer.checkpoints.manifest import MANIFEST, unseal

        found: dict[str, Any] | Exception | None = None
        if self._runtime.rank == 0:
            try:
                found = unseal(folder.read(MANIFEST))
            except MissingFileError as error:
                # Something else may be in the place of the file.
                found = error if MANIFEST in folder.names() else _NotSealedError("it was not finished")
            except (ValueError, StorageError) as error:
                found = error
        found = self._runtime.share(found)
        if isinstance(found, Exception):
            raise found
        assert found is not None
        return found

    def _delete_old(self, *, before: int) -> None:
        """Delete the checkpoints of steps before this one, except the newest whole ones and the younger ones."""
        from trainer.checkpoints.manifest import MANIFEST, is_whole

        kept = 1
        for name in self._newest_first():
            if _step(name) >= before:
                continue
            folder = self.folder.child(name)
            try:
                if kept < self._keep and name not in self._rejected and is_whole(folder):
                    kept += 1
                    continue
                age = folder.age(MANIFEST)
            except StorageError:
                # Its state is unknown: neither count it nor delete it.
                continue
            if age >= self._keep_seconds:
                self._permit()
                # The seal first: a checkpoint that is half deleted must not be taken for one.
                self.folder.delete(name, first=MANIFEST)

    def _newest_first(self) -> list[str]:
        return sorted((name for name in self.folder.names() if NAME.fullmatch(name)), reverse=True)


def _step(name: str) -> int:
    """The step that a checkpoint is named by."""
    return int(name.removeprefix("step-"))


class _NotSealedError(ValueError):
    """A checkpoint was never finished; a run that was killed during its first save has only such."""


def _cause(error: CheckpointException) -> BaseException:
    """What happened on the rank that failed first; all of it where nobody has a sentence for that."""
    failures = error.failures
    cause = failures[min(failures)][0]
    return cause if isinstance(cause, TrainerError | ValueError | RuntimeError | MemoryError) else error
