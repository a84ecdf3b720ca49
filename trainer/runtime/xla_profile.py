"""Profiles some steps of a process with XLA's profiler, for TensorBoard's XProf, into a folder of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch_xla
import torch_xla.debug.profiler as xp

from trainer.runtime.profile import StepProfile
from trainer.storage import Folder


class XlaStepProfile(StepProfile):
    """Profiles the steps from `first` to `last`."""

    def __init__(self, folder: Folder, first: int, last: int) -> None:
        super().__init__(folder, first, last)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def before(self, step: int) -> None:
        """A step begins."""
        if self._scratch is None and self._first <= step <= self._last:
            self._scratch = tempfile.TemporaryDirectory()
            xp.start_trace(self._scratch.name)

    def end(self) -> str | None:
        """No further step is profiled; returns the URL of the folder where there are steps that no trace has yet."""
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
