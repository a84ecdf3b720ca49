"""The device and the other ranks: one class each for CPU and CUDA behind the same methods."""

from __future__ import annotations

import torch

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.runtime.base import Runtime
from trainer.runtime.cpu import CpuRuntime
from trainer.runtime.cuda import CudaRuntime

__all__ = ["Runtime", "start_runtime"]


def start_runtime(config: TrainConfig) -> Runtime:
    """Take the device and meet the other ranks; raises ConfigurationError where there is no such device."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("device is 'cuda'; allowed is 'cpu' or 'auto' here: this machine has no CUDA device")
    if config.device == "cpu" or not torch.cuda.is_available():
        return CpuRuntime(config)
    return CudaRuntime(config)
