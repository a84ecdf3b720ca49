"""CUDA runtime: one GPU per rank, NCCL between GPUs, and gloo for tensors in CPU memory."""

from __future__ import annotations

import torch

from trainer.config import TrainConfig
from trainer.exit_codes import ConfigurationError
from trainer.runtime.base import Runtime


class CudaRuntime(Runtime):
    """A rank on a GPU."""

    backend = "cpu:gloo,cuda:nccl"

    def half(self) -> torch.dtype | None:
        """Return bfloat16 from Ampere on, else float16, for which the loop scales losses."""
        return torch.bfloat16 if torch.cuda.get_device_capability(self.device) >= (8, 0) else torch.float16

    def init_device(self, config: TrainConfig) -> None:
        """Use the GPU with this rank's number on its host. Raises ConfigurationError if there are too few GPUs."""
        found = torch.cuda.device_count()
        if self.local_rank >= found:
            raise ConfigurationError(
                f"processes per host is {self.local_world}; allowed is at most {found}, this host's number of GPUs"
            )
        if config.threads:
            torch.set_num_threads(config.threads)
        self.device = torch.device("cuda", self.local_rank)
        self.device_ids = [self.local_rank]
        torch.cuda.set_device(self.device)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
