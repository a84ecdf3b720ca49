"""Names of Google Cloud's quotas: https://cloud.google.com/compute/resource-usage."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_GPU_QUOTAS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
        "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
        "nvidia-l4": "NVIDIA_L4_GPUS",
        "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
        "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    }
)
"""Quota of each GPU model. Newer models share GPUS_PER_GPU_FAMILY, which has a limit for each family."""
_GPU_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-h100-80gb": "NVIDIA_H100",
        "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA",
        "nvidia-h200-141gb": "NVIDIA_H200",
        "nvidia-b200": "NVIDIA_B200",
    }
)
GCE_GPUS = frozenset(_GPU_QUOTAS) | frozenset(_GPU_FAMILIES)
"""GPU models with a quota."""
_TPU_FAMILIES: Mapping[str, str] = MappingProxyType(
    {"v4": "CT4P", "v5e": "CT5LP", "v5p": "CT5P", "v6e": "CT6E", "v7x": "TPU7X"}
)
_CPU_QUOTAS: Mapping[str, str] = MappingProxyType(
    {"n1": "CPUS", "e2": "CPUS", "n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS"}
)
"""vCPU quota of each family. Newer families share CPUS_PER_VM_FAMILY. Machines with accelerators do not count."""


def gpu_quota(gpu: str) -> str:
    """Return the quota of a GPU model. The spot quota has the prefix PREEMPTIBLE_."""
    return _GPU_QUOTAS.get(gpu) or f"GPUS_PER_GPU_FAMILY (gpu_family: {_GPU_FAMILIES[gpu]})"


def tpu_quota(generation: str) -> str:
    """Return the chip quota of a TPU generation. The spot quota has the prefix PREEMPTIBLE_.

    Source: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#ensure-quota.
    """
    return f"TPUS_PER_TPU_FAMILY (tpu_family: {_TPU_FAMILIES[generation]})"


def cpu_quota(family: str) -> str:
    """Return the vCPU quota of a machine family."""
    return _CPU_QUOTAS.get(family, f"CPUS_PER_VM_FAMILY (vm_family: {family.upper()})")


def disk_quota(disk_type: str) -> str:
    """Return the quota of a disk type, except pd-standard, whose quota is never the limit."""
    return "HYPERDISK_BALANCED_GB" if disk_type.startswith("hyperdisk") else "SSD_TOTAL_GB"
