"""Profile some steps of a process with XLA's profiler, for TensorBoard's XProf, into the process's own folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch_xla
import torch_xla.debug.profiler as xp

from trainer.runtime.profile import StepProfile
from trainer.storage import Folder


class XlaStepProfile(StepProfile):
    """Profile the steps from `first` to `last`."""

    def __init__(self, folder: Folder, first: int, last: int) -> None:
        super().__init__(folder, first, last)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def before(self, step: int) -> None:
        """Start the profiler if this is the first step to profile."""
        if self._scratch is None and self._first <= step <= self._last:
            self._scratch = tempfile.TemporaryDirectory()
            xp.start_trace(self._scratch.name)

    def end(self) -> str | None:
        """Stop the profiler and write the trace. Returns its folder's URL, or None if there is nothing to write."""
        if self._scratch is None:
            return None
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
