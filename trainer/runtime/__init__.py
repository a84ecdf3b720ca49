"""The device and the other ranks: one class each for CPU, CUDA and XLA with a common interface."""

from __future__ import annotations

import os

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.gpu import should_use_gpu
from trainer.runtime.base import CpuRuntime, CudaRuntime, Runtime

__all__ = ["Runtime", "start_runtime"]


def start_runtime(config: TrainConfig) -> Runtime:
    """Initialise the device and join the other ranks. Raises ConfigurationError if the device does not exist.

    `auto` does not fall back to the CPU if torch cannot use the GPU. With `auto`, $PJRT_DEVICE selects PyTorch/XLA:
    https://docs.pytorch.org/xla/release/r2.9/learn/pjrt.html
    """
    if config.device == "xla" or (config.device == "auto" and os.environ.get("PJRT_DEVICE")):
        # Imported here because PyTorch/XLA is only in its own environment, with a matching torch.
        from trainer.runtime.xla import start_xla

        return start_xla(config)
    if config.device == "cpu":
        return CpuRuntime(config)
    if should_use_gpu():
        return CudaRuntime(config)
    if config.device == "cuda":
        raise ConfigurationError("device = 'cuda': must be 'cpu' or 'auto', because this machine has no CUDA device")
    return CpuRuntime(config)
