"""Profiles the steps of a run that its settings ask for, and says where the profile lies."""

from __future__ import annotations

from trainer.config import TrainConfig, step_range
from trainer.report.metrics import Reporter
from trainer.runtime import Runtime


class RunProfile:
    """The profile of a rank's steps; one that nobody asks for does nothing."""

    def __init__(self, config: TrainConfig, runtime: Runtime, report: Reporter) -> None:
        asked = step_range(config.profile_steps)
        self._report = report
        self._profile = runtime.step_profile(config, *asked) if asked else None

    def before(self, step: int) -> None:
        """A step begins."""
        if self._profile:
            self._profile.before(step)

    def after(self, step: int) -> None:
        """A step has ended, which may be the last that is asked for."""
        if self._profile and self._profile.after(step):
            self.end()

    def end(self) -> None:
        """Keep what is profiled and not kept yet, however few of the steps that are."""
        if self._profile and (trace := self._profile.end()):
            self._report.event("profile", path=trace)
