"""Profile some steps of a rank with torch.profiler or XLA's profiler, into the rank's own folder in the bucket."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.config import TrainConfig, step_range
from trainer.reporter import warn
from trainer.storage import Folder, profiles_folder

if TYPE_CHECKING:
    from torch.profiler import profile

    from trainer.reporter import Reporter
    from trainer.runtime.base import Runtime


class StepProfile:
    """Profiler of the requested steps of a rank. It does nothing if no steps are requested.

    chrome://tracing and https://ui.perfetto.dev show the trace.
    """

    folder_prefix = "rank-"

    def __init__(self, config: TrainConfig, runtime: Runtime, report: Reporter) -> None:
        self._config, self._rank, self._report = config, runtime.rank, report
        self._requested = step_range(config.profile_steps)
        self._is_running = False
        self._began = self._reached = 0

    def warn_if_outside(self, done: int, last: int) -> None:
        """Warn, on one rank, if the steps after `done` and up to `last` include none of the requested steps."""
        if self._requested and self._rank == 0 and (self._requested[0] > last or self._requested[1] <= done):
            warn(
                f"profile_steps = {self._config.profile_steps!r}: must include a step of this run, {done + 1} to "
                f"{last}; no profile is written; change --profile-steps"
            )

    def before(self, step: int) -> None:
        """Start the profile if this step is the first one to profile."""
        if self._requested and not self._is_running and self._requested[0] <= step <= self._requested[1]:
            self._is_running, self._began = True, step
            self._start()

    def after(self, step: int) -> None:
        """End the profile if this step was the last one to profile."""
        self._reached = step
        if self._requested and step >= self._requested[1]:
            self.end()

    def end(self) -> None:
        """Write the profile, even if some requested steps are missing."""
        if self._is_running:
            self._is_running = False
            folder = profiles_folder(Folder(self._config.bucket), self._config.job)
            path = self._stop(folder.child(f"{self.folder_prefix}{self._rank}"))
            self._report.event("profile", path=path)

    def _start(self) -> None:
        # Imported here because few runs need it.
        from torch import cuda
        from torch.profiler import profile

        if not cuda.is_available():
            # Turn off the profiler's log, which reports a machine without a GPU as an error.
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        self._profile: profile = profile(record_shapes=True)
        self._profile.start()

    def _stop(self, folder: Folder) -> str:
        """Stop the profiler and write the trace. Returns its URL."""
        self._profile.stop()
        name = f"steps-{self._began}-{self._reached}.json.gz"
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            folder.write(name, gzip.compress(path.read_bytes(), compresslevel=3))
        return f"{folder.url}/{name}"


class XlaStepProfile(StepProfile):
    """Profiler of a process on XLA. XProf, a plug-in of TensorBoard, shows the profile."""

    folder_prefix = "proc_"

    def _start(self) -> None:
        # Imported here because torch_xla is only in its own environment.
        import torch_xla.debug.profiler as xp

        self._scratch = tempfile.TemporaryDirectory()
        xp.start_trace(self._scratch.name)

    def _stop(self, folder: Folder) -> str:
        import torch_xla
        import torch_xla.debug.profiler as xp

        torch_xla.sync(wait=True)
        xp.stop_trace()
        with self._scratch as scratch:
            for path in sorted(Path(scratch).rglob("*")):
                if path.is_file():
                    place = path.parent.relative_to(scratch).as_posix()
                    (folder if place == "." else folder.child(place)).write(path.name, path.read_bytes())
        return folder.url
