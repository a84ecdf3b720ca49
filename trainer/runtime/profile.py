"""Profile some steps of a rank with torch.profiler, into the rank's own folder in the bucket."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.storage import Folder

if TYPE_CHECKING:
    from torch.profiler import profile


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
