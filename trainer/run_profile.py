"""Profiles the steps of a run that its settings ask for, and says where the profile lies."""

from __future__ import annotations

import sys

from trainer.config import TrainConfig, step_range
from trainer.report.metrics import Reporter
from trainer.runtime import Runtime


class RunProfile:
    """The profile of a rank's steps; one that nobody asks for does nothing."""

    def __init__(self, config: TrainConfig, runtime: Runtime, report: Reporter) -> None:
        self._asked = asked = step_range(config.profile_steps)
        self._report = report
        self._speaks = runtime.rank == 0
        self._profile = runtime.step_profile(config, *asked) if asked else None

    def expect(self, done: int, last: int) -> None:
        """The run goes on after step `done`, to `last`: warn, once for all ranks, where none of it is asked for."""
        if self._asked and self._speaks and (self._asked[0] > last or self._asked[1] <= done):
            print(
                f"warning: profile_steps is '{self._asked[0]}-{self._asked[1]}', and the run goes from step {done} to "
                f"{last}: it makes no profile; set --profile-steps to steps of it",
                file=sys.stderr,
                flush=True,
            )

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
