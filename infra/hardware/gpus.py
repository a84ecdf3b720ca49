"""Table of GPU models by GKE's name. Google Cloud zones of GPUs and TPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from infra.hardware.machines import zone_set
from infra.hardware.tpus import GENERATIONS, is_tpu, tpu_slice


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """Limits of N1 machines with attached GPUs.

    Source: https://cloud.google.com/compute/docs/gpus#n1-gpus
    """

    largest_machine: Mapping[int, tuple[int, float]]
    """Number of GPUs -> maximum vCPUs and maximum memory (GiB) of the machine."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Allowed numbers of GPUs."""
        return tuple(self.largest_machine)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """GPU model."""

    name: str
    """GKE's name, the value of the node label `cloud.google.com/gke-accelerator`."""
    device_name: str
    """Part of the name that CUDA reports. If `teraflops` is set, `trainer/step_log.py` repeats it under this name."""
    memory_gib: int
    """Memory of the largest variant, in GiB. A program can use a little less.

    https://cloud.google.com/compute/docs/gpus and https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html write GB
    for GiB. A V100 has 32 in p3dn.24xlarge and 16 in other machines. B300:
    https://www.nvidia.com/en-us/data-center/hgx/.
    """
    teraflops: float | None
    """Peak TFLOPS of dense 16-bit operations, as in `trainer/step_log.py`; None if no number is published."""
    attachment: Attachment | None
    """Limits of N1 machines with this GPU; None if the GPU is built into machine types."""
    runs_cuda_13: bool
    """True if the GPU can run CUDA 13, which needs compute capability 7.5 (T4) or later.

    https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html#deprecated-architectures
    """
    has_float8: bool
    """True if the tensor cores support FP8, which needs compute capability 8.9 (L4) or later.

    https://nvidia.github.io/TransformerEngine/support_matrix.html
    """
    gce_quota: str | None
    """Google's quota; None for a model that is not on GCE. The name of the spot quota has the prefix PREEMPTIBLE_.

    https://cloud.google.com/compute/resource-usage#gpu_quota
    """
    gce_zones: frozenset[str]
    """Google Cloud zones with the model.

    These are the zones of https://cloud.google.com/compute/docs/gpus/gpu-regions-zones that have a price in
    https://github.com/skypilot-org/skypilot-catalog, catalogs/v8/gcp. If there are none, validation accepts all zones.
    """


RESOURCE = "nvidia.com/gpu"
"""Name of the Kubernetes resource for GPUs: https://github.com/NVIDIA/k8s-device-plugin"""


def _shared_quota(family: str) -> str:
    """Return the quota of a newer GPU family: a dimension of the shared quota GPUS_PER_GPU_FAMILY."""
    return f"GPUS_PER_GPU_FAMILY (gpu_family: {family})"


_T4 = Attachment(largest_machine={1: (48, 312), 2: (48, 312), 4: (96, 624)})
_V100 = Attachment(largest_machine={1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)})

GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="nvidia-tesla-t4",
            device_name="Tesla T4",
            memory_gib=16,
            teraflops=65.0,
            attachment=_T4,
            runs_cuda_13=True,
            has_float8=False,
            gce_quota="NVIDIA_T4_GPUS",
            gce_zones=zone_set(
                "asia-east1 a c, asia-east2 a c, asia-northeast1 a c, asia-northeast3 b c, asia-south1 a b, "
                "asia-southeast1 a b c, asia-southeast2 a b, australia-southeast1 a c, europe-central2 b c, "
                "europe-west1 b c d, europe-west2 a b, europe-west3 b, europe-west4 a b c, me-west1 b c, "
                "northamerica-northeast1 c, southamerica-east1 a b c, us-central1 a b c f, us-east1 b c d, "
                "us-east4 a b c, us-west1 a b, us-west2 b c, us-west3 b, us-west4 a b"
            ),
        ),
        Gpu(
            name="nvidia-tesla-v100",
            device_name="V100",
            memory_gib=32,
            teraflops=125.0,
            attachment=_V100,
            runs_cuda_13=False,
            has_float8=False,
            gce_quota="NVIDIA_V100_GPUS",
            gce_zones=zone_set("asia-east1 c, europe-west4 a b c, us-central1 a b c f, us-east1 b c, us-west1 a b"),
        ),
        Gpu(
            name="nvidia-l4",
            device_name="L4",
            memory_gib=24,
            teraflops=121.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota="NVIDIA_L4_GPUS",
            gce_zones=zone_set(
                "asia-east1 a b c, asia-northeast1 a b c, asia-northeast3 a b, asia-south1 a b c, "
                "asia-southeast1 a b c, europe-west1 b c, europe-west2 a b, europe-west3 a b, europe-west4 a b "
                "c, europe-west6 b c, me-central2 a c, northamerica-northeast1 b c, northamerica-northeast2 a b, "
                "us-central1 a b c, us-east1 b c d, us-east4 a c, us-west1 a b c, us-west4 a c"
            ),
        ),
        Gpu(
            name="nvidia-a10g",
            device_name="A10G",
            memory_gib=24,
            teraflops=None,
            attachment=None,
            runs_cuda_13=True,
            has_float8=False,
            gce_quota=None,
            gce_zones=frozenset(),
        ),
        Gpu(
            name="nvidia-tesla-a100",
            device_name="A100",
            memory_gib=40,
            teraflops=312.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=False,
            gce_quota="NVIDIA_A100_GPUS",
            gce_zones=zone_set(
                "asia-northeast1 a c, asia-northeast3 a b, asia-southeast1 a b c, europe-west4 a b, me-west1 a "
                "c, us-central1 a b c f, us-east1 b, us-west1 b, us-west3 b, us-west4 b"
            ),
        ),
        Gpu(
            name="nvidia-a100-80gb",
            device_name="A100",
            memory_gib=80,
            teraflops=312.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=False,
            gce_quota="NVIDIA_A100_80GB_GPUS",
            gce_zones=zone_set("asia-southeast1 c, europe-west4 a, us-central1 a c, us-east4 c, us-east5 a b"),
        ),
        Gpu(
            name="nvidia-h100-80gb",
            device_name="H100",
            memory_gib=80,
            teraflops=989.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota=_shared_quota("NVIDIA_H100"),
            gce_zones=zone_set(
                "asia-east1 c, asia-northeast1 b, asia-south1 c, asia-south2 b, asia-southeast1 b c, "
                "australia-southeast1 c, europe-north1 c, europe-west1 b c, europe-west3 c, europe-west4 b c, "
                "europe-west8 c, europe-west9 c, us-central1 a b c, us-east4 a b c, us-east5 a, us-west1 a b, "
                "us-west4 a"
            ),
        ),
        Gpu(
            name="nvidia-h100-mega-80gb",
            device_name="H100",
            memory_gib=80,
            teraflops=989.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota=_shared_quota("NVIDIA_H100_MEGA"),
            gce_zones=zone_set(
                "asia-east1 c, asia-northeast1 b, asia-southeast1 b c, australia-southeast1 c, europe-north1 c, "
                "europe-west1 b c, europe-west3 c, europe-west4 b c, us-central1 a b c, us-east4 a b c, us-east5 "
                "a, us-west1 a b, us-west4 a"
            ),
        ),
        Gpu(
            name="nvidia-h200-141gb",
            device_name="H200",
            memory_gib=141,
            teraflops=989.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota=_shared_quota("NVIDIA_H200"),
            gce_zones=zone_set(
                "asia-south1 b, asia-south2 c, europe-west1 b, europe-west4 a, us-central1 b, us-east4 b, "
                "us-east5 a, us-south1 b, us-west1 c"
            ),
        ),
        Gpu(
            name="nvidia-b200",
            device_name="B200",
            memory_gib=180,
            teraflops=2250.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota=_shared_quota("NVIDIA_B200"),
            gce_zones=zone_set(
                "asia-northeast1 b, asia-southeast1 b, europe-north1 b, europe-west4 b, us-central1 b, us-east1 "
                "b, us-east4 b, us-south1 b, us-west2 c, us-west3 b c"
            ),
        ),
        Gpu(
            name="nvidia-rtx-pro-6000",
            device_name="RTX PRO 6000",
            memory_gib=96,
            teraflops=None,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            # Assumed: no page has the name, so it follows the names for other models.
            gce_quota=_shared_quota("NVIDIA_RTX_PRO_6000"),
            # No page lists the zones.
            gce_zones=frozenset(),
        ),
        Gpu(
            name="nvidia-l40s",
            device_name="L40S",
            memory_gib=48,
            teraflops=362.05,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota=None,
            gce_zones=frozenset(),
        ),
        Gpu(
            name="nvidia-b300",
            device_name="B300",
            memory_gib=288,
            teraflops=2250.0,
            attachment=None,
            runs_cuda_13=True,
            has_float8=True,
            gce_quota=None,
            gce_zones=frozenset(),
        ),
    )
}
"""GPU models by name. Models that only EC2 has, such as `nvidia-a10g`, have names in GKE's format.

Names: https://cloud.google.com/compute/docs/gpus/about-gpus
"""


TPU_ZONES: Mapping[str, frozenset[str]] = {row.name: row.zones for row in GENERATIONS.values()}
"""TPU generation -> its zones."""

TPU_FLEX_START_ZONES: Mapping[str, frozenset[str]] = {
    row.name: row.flex_start_zones for row in GENERATIONS.values() if row.flex_start_zones
}
"""TPU generation -> zones with flex-start, if there are any."""

GPU_ZONES: Mapping[str, frozenset[str]] = {gpu.name: gpu.gce_zones for gpu in GPUS.values() if gpu.gce_zones}
"""GPU model on GCE -> its zones."""

_REGIONS_WITH_ZONES_ABC = (
    "africa-south1 asia-east1 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1 asia-south2 "
    "asia-southeast1 asia-southeast2 asia-southeast3 australia-southeast1 australia-southeast2 europe-central2 "
    "europe-north1 europe-north2 europe-southwest1 europe-west2 europe-west3 europe-west4 europe-west6 europe-west8 "
    "europe-west9 europe-west10 europe-west12 me-central1 me-central2 me-west1 northamerica-northeast1 "
    "northamerica-northeast2 northamerica-south1 southamerica-east1 southamerica-west1 us-east4 us-east5 us-south1 "
    "us-west1 us-west2 us-west3 us-west4"
)
GCP_ZONES = frozenset[str]().union(
    zone_set(", ".join(f"{region} a b c" for region in _REGIONS_WITH_ZONES_ABC.split())),
    zone_set("europe-west1 b c d, us-central1 a b c f, us-east1 b c d"),
    *TPU_ZONES.values(),
    *GPU_ZONES.values(),
)
"""All zones, including zones with accelerators only: https://cloud.google.com/compute/docs/regions-zones"""
GCP_REGIONS = frozenset(zone.rpartition("-")[0] for zone in GCP_ZONES)
"""All regions, from the same sources."""

MISSING_MACHINE_FAMILIES: Mapping[str, frozenset[str]] = {"us-central2-b": frozenset({"e2"})}
"""TPU zone -> machine families that the zone lacks: https://github.com/keras-team/kinetic/issues/305"""


BRANDS = frozenset({"nvidia", "tesla"})
"""Words in GPU names that do not identify the model."""


def is_accelerator(name: str) -> bool:
    """Return True if a name is a GPU model or has the form of a TPU name."""
    return name in GPUS or is_tpu(name)


def unknown_accelerator(name: str) -> str:
    """Return the error message for an unknown accelerator, with similar names and all allowed names."""
    similar = _similar_accelerators(name.lower())
    generations = ", ".join(f"{row.name} ({row.type_prefix}-N)" for row in GENERATIONS.values())
    allowed = f"a GPU ({', '.join(GPUS)}) or a TPU such as v4-32 ({generations})"
    return "is not an accelerator; write " + (f"{' or '.join(similar)}; allowed: {allowed}" if similar else allowed)


def _similar_accelerators(name: str) -> list[str]:
    """Return the accelerators most similar to a lower-case name."""
    generation, dash, count = name.partition("-")
    if generation in GENERATIONS:
        name = f"{GENERATIONS[generation].type_prefix}{dash}{count}" if count else generation
    if is_tpu(name):
        try:
            return [tpu_slice(name).accelerator_type] if count else [name]
        except ValueError:
            return []
    words = set(re.split(r"[^a-z0-9]+", name)) - BRANDS
    return [gpu for gpu in GPUS if words and words <= set(gpu.split("-"))] or get_close_matches(name, GPUS, n=1)
