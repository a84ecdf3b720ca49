"""Runtime: a rank's device, and its communication with the other ranks. One interface for CPU, CUDA and XLA."""

from __future__ import annotations

import os

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.gpu import should_use_gpu
from trainer.runtime.base import CpuRuntime, CudaRuntime, Runtime

__all__ = ["Runtime", "start_runtime"]


def start_runtime(config: TrainConfig) -> Runtime:
    """Initialise the device and join the other ranks. Raises ConfigurationError if the device does not exist.

    With `auto`, $PJRT_DEVICE selects PyTorch/XLA: https://docs.pytorch.org/xla/release/r2.9/learn/pjrt.html. `auto`
    does not fall back to the CPU if torch cannot use the host's GPU.
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
