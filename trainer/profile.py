"""Profiles of some steps of a rank, with torch.profiler or XLA's profiler, in the rank's own folder in the bucket."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.config import TrainConfig, step_range
from trainer.storage import Folder

if TYPE_CHECKING:
    from torch.profiler import profile

    from trainer.reporter import Reporter
    from trainer.runtime.base import Runtime


class StepProfile:
    """Profile the steps from `first` to `last`. The trace is for chrome://tracing and https://ui.perfetto.dev."""

    def __init__(self, folder: Folder, first: int, last: int) -> None:
        self._folder, self._first, self._last = folder, first, last
        self._began = self._reached = first
        self._profile: profile | None = None

    def before(self, step: int) -> None:
        """Start the profiler if this is the first step to profile."""
        if self._profile is None and self._first <= step <= self._last:
            self._began = step
            # Imported here because few runs need it.
            from torch import cuda
            from torch.profiler import profile

            if not cuda.is_available():
                # Its log reports a machine without a GPU as an error.
                os.environ.setdefault("KINETO_LOG_LEVEL", "99")

            self._profile = profile(record_shapes=True)
            self._profile.start()

    def after(self, step: int) -> bool:
        """Record the end of a step. Returns True if it was the last step to profile."""
        self._reached = step
        return step >= self._last

    def end(self) -> str | None:
        """Stop the profiler and write the trace. Returns its URL, or None if there is nothing to write."""
        if self._profile is None:
            return None
        self._profile.stop()
        name = f"steps-{self._began}-{self._reached}.json.gz"
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            self._folder.write(name, gzip.compress(path.read_bytes(), compresslevel=3))
        self._profile = None
        return f"{self._folder.url}/{name}"


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


class XlaStepProfile(StepProfile):
    """Profile the steps from `first` to `last`."""

    def __init__(self, folder: Folder, first: int, last: int) -> None:
        super().__init__(folder, first, last)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def before(self, step: int) -> None:
        """Start the profiler if this is the first step to profile."""
        if self._scratch is None and self._first <= step <= self._last:
            import torch_xla.debug.profiler as xp

            self._scratch = tempfile.TemporaryDirectory()
            xp.start_trace(self._scratch.name)

    def end(self) -> str | None:
        """Stop the profiler and write the trace. Returns its folder's URL, or None if there is nothing to write."""
        if self._scratch is None:
            return None
        # Imported here because torch_xla is only in its own environment.
        import torch_xla
        import torch_xla.debug.profiler as xp

        torch_xla.sync(wait=True)
        xp.stop_trace()
        with self._scratch as scratch:
            for path in sorted(Path(scratch).rglob("*")):
                if path.is_file():
                    folder = self._folder
                    for part in path.relative_to(scratch).parts[:-1]:
                        folder = folder.child(part)
                    folder.write(path.name, path.read_bytes())
        self._scratch = None
        return self._folder.url
