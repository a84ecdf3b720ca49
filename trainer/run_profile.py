"""Profile the requested steps of a run and report where the profile is."""

from __future__ import annotations

import sys

from trainer.config import TrainConfig, step_range
from trainer.report.metrics import Reporter
from trainer.runtime import Runtime


class RunProfile:
    """The profile of a rank's steps. Without requested steps it does nothing."""

    def __init__(self, config: TrainConfig, runtime: Runtime, report: Reporter) -> None:
        self._asked = asked = step_range(config.profile_steps)
        self._report = report
        self._speaks = runtime.rank == 0
        self._profile = runtime.step_profile(config, *asked) if asked else None

    def expect(self, done: int, last: int) -> None:
        """Warn, on one rank, if the run from step `done` to step `last` contains none of the requested steps."""
        if self._asked and self._speaks and (self._asked[0] > last or self._asked[1] <= done):
            print(
                f"warning: profile_steps is '{self._asked[0]}-{self._asked[1]}', and the run goes from step {done} to "
                f"{last}: no profile is written; set --profile-steps to steps in that range",
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
