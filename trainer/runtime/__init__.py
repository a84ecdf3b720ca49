"""The device and the other ranks: one class each for CPU, CUDA and XLA behind the same methods."""

from __future__ import annotations

import os

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.gpu import on_gpu
from trainer.runtime.base import Runtime
from trainer.runtime.cpu import CpuRuntime
from trainer.runtime.cuda import CudaRuntime

__all__ = ["Runtime", "start_runtime"]


def start_runtime(config: TrainConfig) -> Runtime:
    """Take the device and meet the other ranks; raises ConfigurationError where there is no such device.

    Where a GPU is that torch cannot use `auto` is not the CPU.

    PyTorch/XLA is asked for by its own variable, too: https://docs.pytorch.org/xla/release/r2.9/learn/pjrt.html
    """
    if config.device == "xla" or (config.device == "auto" and os.environ.get("PJRT_DEVICE")):
        # Imported here: it is in an environment of its own, with the torch that it was built for.
        from trainer.runtime.xla import start_xla

        return start_xla(config)
    if config.device == "cpu":
        return CpuRuntime(config)
    if on_gpu():
        return CudaRuntime(config)
    if config.device == "cuda":
        raise ConfigurationError("device is 'cuda'; allowed is 'cpu' or 'auto' here: this machine has no CUDA device")
    return CpuRuntime(config)
