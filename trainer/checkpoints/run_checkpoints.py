"""Save a run's state to the bucket and resume from it, while the run holds the lease on its folder."""

from __future__ import annotations

import sys
import uuid

import torch

from trainer.checkpoints.checkpoint import Checkpoints
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


class RunCheckpoints:
    """The checkpoints of a run. Without a bucket it saves and finds nothing."""

    def __init__(
        self, config: TrainConfig, bucket: Folder | None, runtime: Runtime, state: RunState, report: Reporter
    ) -> None:
        self._config, self._runtime, self._state, self._report = config, runtime, state, report
        self.checkpoints: Checkpoints | None = None
        self._passed_over: list[str] = []
        if bucket:
            self.open(bucket)

    def open(self, bucket: Folder) -> Checkpoints:
        """Open the run's checkpoints in a bucket."""
        self._lease = RunLease(bucket.child(self._config.job), node_name())
        self.checkpoints = Checkpoints(
            checkpoints_folder(bucket, self._config.job),
            self._runtime,
            keep=self._config.keep_checkpoints,
            keep_hours=self._config.keep_hours,
            check=self._check_weights,
            permit=self._lease.verify,
            on_saved=lambda step, url, seconds: self._report.event("checkpoint", step=step, path=url, seconds=seconds),
        )
        return self.checkpoints

    def save(self, useful_seconds: float) -> None:
        """Start to save the current state, with the seconds of training that led to it."""
        if self.checkpoints:
            self._state.useful_seconds = useful_seconds
            self.checkpoints.save(self._state.step, self._state.capture(self._runtime))

    def before_update(self) -> None:
        """Wait until the tensors that are being saved may change."""
        if self.checkpoints:
            self.checkpoints.wait_for_copies()

    def wait(self) -> None:
        """Wait until the last save is complete. Raises DivergedError if its weights are not finite."""
        if self.checkpoints:
            self.checkpoints.wait()

    def resume(self) -> bool:
        """Resume from the newest usable checkpoint. Return True if there was one."""
        if not self.checkpoints:
            return False
        if self._runtime.rank == 0:
            # Acquire the lease before looking for checkpoints, so that an earlier run cannot save any more.
            self._lease.acquire()
        saved = self.checkpoints.load_newest(check_compatible=self._state.check_compatible, skipped=self._skipped)
        if saved is None:
            self._warn_of_unfinished()
            return False
        self._state.restore(saved, self._runtime, seed=self._config.seed)
        epoch = self._state.sampler.epoch + 1
        self._report.event("resume", step=self._state.step, epoch=epoch, path=self.checkpoints.folder.url)
        return True

    def _check_weights(self, step: int, name: str, tensor: torch.Tensor) -> None:
        """Raise DivergedError for a weight that is not finite. An update can cause that before any loss shows it."""
        # One non-finite value makes the sum non-finite. A sum takes a tenth of the time of checking each weight.
        if name.startswith(MODEL) and tensor.is_floating_point():
            wide = torch.promote_types(tensor.dtype, torch.float32)
            if not tensor.sum(dtype=wide).isfinite():
                raise diverged(step, self._config.learning_rate)

    def _warn_of_unfinished(self) -> None:
        """Warn, on one rank, that training starts over although there are unfinished checkpoints."""
        if self._passed_over and self._runtime.rank == 0:
            assert self.checkpoints
            print(
                f"warning: training starts over: none of the {len(self._passed_over)} checkpoints in "
                f"{self.checkpoints.folder.url} is finished; if one was, stop this run and restore its checkpoint.json",
                file=sys.stderr,
                flush=True,
            )

    def _skipped(self, name: str, reason: str) -> None:
        self._passed_over.append(name)
        self._report.event("checkpoint_skipped", path=name, reason=reason.replace(" ", "_"))
