"""Saves a run's state into its folder of the bucket, and goes on from there when the run is started again."""

from __future__ import annotations

from trainer.checkpoints.checkpoint import Checkpoints, Saved
from trainer.checkpoints.state import RunState
from trainer.config import TrainConfig
from trainer.report.metrics import Reporter
from trainer.runtime import Runtime
from trainer.storage import Folder


class RunCheckpoints:
    """The checkpoints of a run; one without a folder saves nothing and finds nothing."""

    def __init__(
        self, config: TrainConfig, folder: Folder | None, runtime: Runtime, state: RunState, report: Reporter
    ) -> None:
        self._config, self._runtime, self._state, self._report = config, runtime, state, report
        self.checkpoints: Checkpoints | None = None
        if folder:
            self.open(folder)

    def open(self, folder: Folder) -> Checkpoints:
        """Use the checkpoints in the run's folder."""
        self.checkpoints = Checkpoints(
            folder.child("checkpoints"),
            self._runtime,
            keep=self._config.keep_checkpoints,
            keep_hours=self._config.keep_hours,
            on_saved=lambda step, url, seconds: self._report.event("checkpoint", step=step, path=url, seconds=seconds),
        )
        return self.checkpoints

    def take(self, useful_seconds: float) -> Saved | None:
        """The state as it is, `useful_seconds` of steps having led to it; None where nothing is to be saved."""
        if not self.checkpoints:
            return None
        self._state.useful_seconds = useful_seconds
        return self._state.capture(self._runtime)

    def save(self, taken: Saved | None) -> None:
        """Begin to save what `take` gave at this step."""
        if self.checkpoints and taken:
            self.checkpoints.save(self._state.step, taken)

    def before_update(self) -> None:
        """Wait until what is being saved may change."""
        if self.checkpoints:
            self.checkpoints.copied()

    def wait(self) -> None:
        """Wait until what was saved last is whole."""
        if self.checkpoints:
            self.checkpoints.wait()

    def resume(self) -> bool:
        """Go on from the newest good checkpoint; whether there was one."""
        if not self.checkpoints:
            return False
        saved = self.checkpoints.newest(fits=self._state.fits, skipped=self._skipped)
        if saved is None:
            return False
        self._state.restore(saved, self._runtime, seed=self._config.seed)
        epoch = self._state.sampler.epoch + 1
        self._report.event("resume", step=self._state.step, epoch=epoch, path=self.checkpoints.folder.url)
        return True

    def _skipped(self, name: str, reason: str) -> None:
        self._report.event("checkpoint_skipped", path=name, reason=reason.replace(" ", "_"))
