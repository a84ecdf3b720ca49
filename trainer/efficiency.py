"""Measures of efficiency: shares of a step, memory, FLOPS, and goodput over all restarts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from trainer.checkpoints.state import RunState
from trainer.config import DigitsConfig, ImagenetConfig
from trainer.data.batch import Data
from trainer.report.flops import flops_per_sample, peak_flops
from trainer.report.step_clock import StepClock, StepTimes

STATM = Path("/proc/self/statm")
"""File with the process's memory in pages. Its second number is the resident memory."""


class Efficiency:
    """Compute how well a rank uses its time and device."""

    def __init__(
        self,
        config: DigitsConfig | ImagenetConfig,
        data: Data,
        state: RunState,
        clock: StepClock,
        device: torch.device,
    ) -> None:
        self._data, self._state, self._clock, self._device = data, state, clock, device
        self._before = 0.0
        self._logged = 0
        self._flops: float | None = None
        self._peak = config.peak_teraflops * 1e12 or peak_flops(device, sixteen_bits=config.amp)

    @property
    def useful_seconds(self) -> float:
        """Seconds of the steps that led to the present weights, over all restarts."""
        return self._before + self._clock.useful

    def resume(self) -> None:
        """Continue from a checkpoint's value."""
        self._before = self._state.useful_seconds

    def shares(self, times: StepTimes, rate: float) -> dict[str, float]:
        """Return the measures of the last steps, from their times and this rank's samples a second.

        data_wait and all_reduce are percent of the steps' time, and memory_mib is MiB. teraflops is 10^12 operations a
        second, and mfu is percent of the device's peak. goodput is percent of the time since the run first began.
        """
        self._logged += 1
        total = max(times.total, 1e-9)
        found = {
            "data_wait": 100 * times.data / total,
            "all_reduce": 100 * times.all_reduce / total,
            "memory_mib": self._memory() / 2**20,
            "goodput": min(100.0, 100 * self.useful_seconds / max(time.time() - self._state.began, 1e-9)),
        }
        # Counted once, after the first line, so that the first step does not wait for it.
        if self._logged == 2:
            self._flops = flops_per_sample(self._state.model, (self._data.channels, self._data.side, self._data.side))
        if self._flops:
            found["teraflops"] = self._flops * rate / 1e12
            if self._peak:
                found["mfu"] = 100 * self._flops * rate / self._peak
        return found

    def _memory(self) -> int:
        """Return the memory in bytes: the peak allocation on CUDA, else the resident memory."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
