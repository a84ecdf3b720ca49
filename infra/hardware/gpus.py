"""GPU models under GKE's names, and the GPU counts of machines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """Rules for attaching GPUs to a machine without built-in GPUs: the largest machine for each count.

    Source: https://cloud.google.com/compute/docs/gpus#n1-gpus
    """

    largest_machine: Mapping[int, tuple[int, float]]
    """Maximum vCPUs and maximum memory (GiB) of a machine, by its number of GPUs."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Allowed numbers of GPUs."""
        return tuple(self.largest_machine)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """GPU model."""

    name: str
    """GKE's name, the value of the node label `cloud.google.com/gke-accelerator`."""
    attachment: Attachment | None = None
    """Rules for attaching it to a machine type (N1), or None if machine types include it."""


WITHOUT_CUDA_13 = frozenset({"nvidia-tesla-v100"})
"""GPU models that cannot run CUDA 13, which needs compute capability 7.5 (T4) or later.

Source: https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html#deprecated-architectures
"""
RESOURCE = "nvidia.com/gpu"
"""Kubernetes resource of GPUs: https://github.com/NVIDIA/k8s-device-plugin"""

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
"""GPU models by name. `nvidia-a10g` exists only on EC2; its name follows GKE's format.

Names: https://cloud.google.com/compute/docs/gpus/about-gpus
"""
