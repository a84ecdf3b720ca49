"""GPU models by the names that GKE gives them, and how many of one a machine may carry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """How one model is attached to a machine that has none of its own: for each count, the largest machine.

    Source: https://cloud.google.com/compute/docs/gpus#n1-gpus
    """

    largest_machine: Mapping[int, tuple[int, float]]
    """GPUs of one machine -> most vCPUs and most memory (GiB) that it may have."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that a machine may have."""
        return tuple(self.largest_machine)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU model."""

    name: str
    """GKE's name: the value of the node label `cloud.google.com/gke-accelerator`."""
    attachment: Attachment | None = None
    """How it is attached to a machine type of its own choice (N1); None where machine types carry it."""


WITHOUT_CUDA_13 = frozenset({"nvidia-tesla-v100"})
"""Models that nothing runs on which is built with CUDA 13: it begins with compute capability 7.5 (the T4).

Source: https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html#deprecated-architectures
"""
RESOURCE = "nvidia.com/gpu"
"""The Kubernetes resource that a pod asks: https://github.com/NVIDIA/k8s-device-plugin"""

_T4 = Attachment(largest_machine=MappingProxyType({1: (48, 312), 2: (48, 312), 4: (96, 624)}))
_V100 = Attachment(largest_machine=MappingProxyType({1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)}))

GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu(name="nvidia-tesla-t4", attachment=_T4),
            Gpu(name="nvidia-tesla-v100", attachment=_V100),
            Gpu(name="nvidia-l4"),
            Gpu(name="nvidia-a10g"),
            Gpu(name="nvidia-tesla-a100"),
            Gpu(name="nvidia-a100-80gb"),
            Gpu(name="nvidia-h100-80gb"),
            Gpu(name="nvidia-h100-mega-80gb"),
            Gpu(name="nvidia-h200-141gb"),
            Gpu(name="nvidia-b200"),
        )
    }
)
"""Every model, by name. `nvidia-a10g` is on EC2 alone and named in GKE's manner.

Names: https://cloud.google.com/compute/docs/gpus/about-gpus
"""
