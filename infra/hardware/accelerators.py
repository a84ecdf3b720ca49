"""Accelerator names, suggestions for unknown names, and the Google Cloud zones of each accelerator. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from infra.hardware.gpus import GPUS
from infra.hardware.machines import zone_set
from infra.hardware.tpus import GENERATIONS, is_tpu, tpu_slice

TPU_ZONES: Mapping[str, frozenset[str]] = MappingProxyType({row.name: row.zones for row in GENERATIONS.values()})
"""Zones of each TPU generation."""

TPU_FLEX_START_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {row.name: row.flex_start_zones for row in GENERATIONS.values() if row.flex_start_zones}
)
"""Zones with flex-start of each TPU generation that has them."""

GPU_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {gpu.name: gpu.gce_zones for gpu in GPUS.values() if gpu.gce_zones}
)
"""Zones of each GPU model on GCE."""

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
"""All zones, including those with accelerators only: https://cloud.google.com/compute/docs/regions-zones"""
GCP_REGIONS = frozenset(zone.rpartition("-")[0] for zone in GCP_ZONES)
"""All regions, from the same sources."""

NO_E2_ZONES = zone_set("us-central2 b")
"""TPU zones without the E2 family: https://github.com/keras-team/kinetic/issues/305"""


BRANDS = frozenset({"nvidia", "tesla"})
"""Words in GPU names that do not identify the model."""


def is_accelerator(name: str) -> bool:
    """Return True if a name is a GPU model or has the form of a TPU name."""
    return name in GPUS or is_tpu(name)


def unknown_accelerator(name: str) -> str:
    """Return the error message for an unknown accelerator, with similar names and all names."""
    similar = _similar_accelerators(name.lower())
    generations = ", ".join(f"{row.name} ({row.type_prefix}-N)" for row in GENERATIONS.values())
    allowed = f"a GPU, one of {', '.join(GPUS)}, or a TPU such as v4-32, of generation {generations}"
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
