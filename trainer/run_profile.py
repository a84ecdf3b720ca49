"""Profile the requested steps of a run and report where the profile is."""

from __future__ import annotations

import sys

from trainer.config import TrainConfig, step_range
from trainer.report.metrics import Reporter
from trainer.runtime import Runtime


class RunProfile:
    """The profile of a rank's steps. Without requested steps it does nothing."""

    def __init__(self, config: TrainConfig, runtime: Runtime, report: Reporter) -> None:
        self._requested = requested = step_range(config.profile_steps)
        self._report = report
        self._is_reporting = runtime.rank == 0
        self._profile = runtime.step_profile(config, *requested) if requested else None

    def warn_if_outside(self, done: int, last: int) -> None:
        """Warn, on one rank, if the run from step `done` to step `last` contains none of the requested steps."""
        if self._requested and self._is_reporting and (self._requested[0] > last or self._requested[1] <= done):
            print(
                f"warning: profile_steps is '{self._requested[0]}-{self._requested[1]}', and the run goes from step "
                f"{done} to {last}: no profile is written; set --profile-steps to steps in that range",
                file=sys.stderr,
                flush=True,
            )

    def before(self, step: int) -> None:
        """Start the profile if this step is the first one to profile."""
        if self._profile:
            self._profile.before(step)

    def after(self, step: int) -> None:
        """End the profile if this step was the last one to profile."""
        if self._profile and self._profile.after(step):
            self.end()

    def end(self) -> None:
        """Write the profile, even if some requested steps are missing."""
        if self._profile and (trace := self._profile.end()):
            self._report.event("profile", path=trace)
