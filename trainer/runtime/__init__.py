"""The device and the other ranks: one class each for CPU, CUDA and XLA behind the same methods."""

from __future__ import annotations

import os

import torch

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.runtime.base import Runtime
from trainer.runtime.cpu import CpuRuntime
from trainer.runtime.cuda import CudaRuntime

__all__ = ["Runtime", "start_runtime"]


def start_runtime(config: TrainConfig) -> Runtime:
    """Take the device and meet the other ranks; raises ConfigurationError where there is no such device.

    PyTorch/XLA is asked for by its own variable, too: https://docs.pytorch.org/xla/release/r2.9/learn/pjrt.html
    """
    if config.device == "xla" or (config.device == "auto" and os.environ.get("PJRT_DEVICE")):
        # Imported here: it is in an environment of its own, with the torch that it was built for.
        from trainer.runtime.xla import start_xla

        return start_xla(config)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("device is 'cuda'; allowed is 'cpu' or 'auto' here: this machine has no CUDA device")
    if config.device == "cpu" or not torch.cuda.is_available():
        return CpuRuntime(config)
    return CudaRuntime(config)
