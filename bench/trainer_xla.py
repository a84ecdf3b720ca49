"""Claim of the trainer about PyTorch/XLA: an SPMD program compiles no graph after its first steps."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import PROJECT, BenchError
from bench.trainer_rank import write_digits

PYTHON = PROJECT / ".venv-xla" / "bin" / "python"
STEADY = 3
"""Step from which the graph stays the same."""
SAMPLES = 2000
LINE = re.compile(r"^train .*\bcompilations=(\d+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Count:
    """Claim that an event happens at most `goal` times."""

    name: str
    """Name of the measure."""
    found: int
    """Number of events."""
    steps: int
    """Number of steps during which the events were counted."""
    goal: int
    """Maximum number that meets the goal."""

    @property
    def is_held(self) -> bool:
        """True if the goal is met."""
        return self.found <= self.goal

    def line(self) -> str:
        """Return the measure in one line."""
        held = "held" if self.is_held else "short"
        return f"{self.name}  {self.found} in {self.steps} steps  goal {self.goal}  {held}"

    def record(self) -> dict[str, Any]:
        """Return the measure for tools."""
        return {**vars(self), "held": self.is_held}


def compilations() -> Count:
    """Count the graphs that two epochs of digits compile after their third step, on eight virtual CPU devices."""
    if not PYTHON.exists():
        raise BenchError("there is no .venv-xla: run `make xla`")
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder), samples=SAMPLES)
        done = subprocess.run(
            [
                *(str(PYTHON), "-m", "trainer", "digits", "--epochs=2", "--batch-size=100", "--sharding=model"),
                *("--log-steps=1", f"--data-dir={folder}", f"--bucket=file://{folder}/bucket"),
            ],
            cwd=PROJECT,
            env={**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    counts = [int(count) for count in LINE.findall(done.stdout)]
    if done.returncode or len(counts) <= STEADY:
        raise BenchError(f"the run on XLA ended with {done.returncode}:\n{done.stdout[-2000:]}")
    after = len(counts) - STEADY
    return Count(name="spmd-compilations", found=counts[-1] - counts[STEADY - 1], steps=after, goal=0)
