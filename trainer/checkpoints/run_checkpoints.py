"""Save a run's state to the bucket and resume from it, while the run holds the lease on its folder."""

from __future__ import annotations

import time
import uuid

import torch

from trainer.checkpoints.checkpoint import Checkpoints, checkpoint_name
from trainer.checkpoints.state import MODEL, RunState
from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError, diverged
from trainer.reporter import Reporter, node_name
from trainer.runtime import Runtime
from trainer.storage import Folder, MissingFileError, checkpoints_folder

LEASE_FILE = "owner"
"""File with the token of the run that holds the lease."""


class RunLease:
    """This run's claim on its folder, valid until another run acquires the folder."""

    def __init__(self, folder: Folder, node: str) -> None:
        self._folder = folder
        self._token = f"{uuid.uuid4().hex} {node}".encode()

    def acquire(self) -> None:
        """Acquire the folder. An earlier run that still exists cannot save any more."""
        self._folder.write(LEASE_FILE, self._token)

    def verify(self) -> None:
        """Raise ConfigurationError if another run has acquired the folder."""
        try:
            found = self._folder.read(LEASE_FILE)
        except MissingFileError:  # removed by hand: there is no other run
            return
        if found != self._token:
            node = found.decode(errors="replace").partition(" ")[2]
            raise ConfigurationError(
                f"{self._folder.url} was acquired by a run that started later, on {node}; allowed is one run of a job "
                "at a time: stop one of them, or give it another --job"
            )


class RunCheckpoints(Checkpoints):
    """The checkpoints of a run's state in a bucket."""

    def __init__(
        self, config: TrainConfig, bucket: Folder, runtime: Runtime, state: RunState, report: Reporter
    ) -> None:
        super().__init__(
            checkpoints_folder(bucket, config.job), runtime, keep=config.keep_checkpoints, keep_hours=config.keep_hours
        )
        self._config, self._state, self._report = config, state, report
        self._lease = RunLease(bucket.child(config.job), node_name())

    def save_state(self) -> None:
        """Start to save the current state."""
        if self.folder.is_local:  # a run that is killed and resumes from here does not repeat these lines
            self._report.sync()
        self.save(self._state.step, self._state.capture(self._runtime))

    def resume(self) -> None:
        """Resume from the newest usable checkpoint, if there is one."""
        if self._runtime.rank == 0:
            # Acquire the lease before looking for checkpoints, so that an earlier run cannot save any more.
            self._lease.acquire()

        def skipped(name: str, reason: str) -> None:
            self._report.event("checkpoint_skipped", path=name, reason=reason.replace(" ", "_"))

        saved = self.load_newest(
            check_compatible=self._state.check_compatible,
            skipped=skipped,
            sharded_like=lambda name: self._state.sharded_like(name, self._runtime),
        )
        if saved is None:
            return
        self._state.restore(saved, self._runtime, seed=self._config.seed)
        epoch = self._state.sampler.epoch + 1
        self._report.event("resume", step=self._state.step, epoch=epoch, path=self.folder.url)

    def verify_lease(self) -> None:
        """Raise ConfigurationError if another run has acquired the folder."""
        self._lease.verify()

    def sealed(self) -> None:
        """Report the new checkpoint and delete old ones."""
        step, seconds = self.saving_step, time.monotonic() - self.saving_since
        self._report.event("checkpoint", step=step, path=self.folder.child(checkpoint_name(step)).url, seconds=seconds)
        super().sealed()

    def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Raise DivergedError for a weight that is not finite. An update can cause that before any loss shows it."""
        # One non-finite value makes the sum non-finite. A sum takes a tenth of the time of checking each weight.
        if name.startswith(MODEL) and tensor.is_floating_point():
            wide = torch.promote_types(tensor.dtype, torch.float32)
            if not tensor.sum(dtype=wide).isfinite():
                raise diverged(self.saving_step, self._config.learning_rate)
