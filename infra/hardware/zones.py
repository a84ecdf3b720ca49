"""Google Cloud's zones, as documented in 2026-11, and the zones of each accelerator. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from infra.hardware.gpus import GPUS
from infra.hardware.machines import zone_set
from infra.hardware.tpus import GENERATIONS

TPU_ZONES: Mapping[str, frozenset[str]] = MappingProxyType({row.name: row.zones for row in GENERATIONS.values()})
"""Zones of each TPU generation."""

TPU_FLEX_START_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {row.name: row.flex_start_zones for row in GENERATIONS.values() if row.flex_start_zones}
)
"""Zones with flex-start of each TPU generation that has them."""

GPU_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {gpu.name: gpu.gce_zones for gpu in GPUS.values() if gpu.gce_zones}
)
"""Zones of each GPU model that GCE has."""

_THREE = (
    "africa-south1 asia-east1 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1 asia-south2 "
    "asia-southeast1 asia-southeast2 asia-southeast3 australia-southeast1 australia-southeast2 europe-central2 "
    "europe-north1 europe-north2 europe-southwest1 europe-west2 europe-west3 europe-west4 europe-west6 europe-west8 "
    "europe-west9 europe-west10 europe-west12 me-central1 me-central2 me-west1 northamerica-northeast1 "
    "northamerica-northeast2 northamerica-south1 southamerica-east1 southamerica-west1 us-east4 us-east5 us-south1 "
    "us-west1 us-west2 us-west3 us-west4"
)
GCP_ZONES = frozenset[str]().union(
    zone_set(", ".join(f"{region} a b c" for region in _THREE.split())),
    zone_set("europe-west1 b c d, us-central1 a b c f, us-east1 b c d"),
    *TPU_ZONES.values(),
    *GPU_ZONES.values(),
)
"""All zones, including those with accelerators only: https://cloud.google.com/compute/docs/regions-zones"""
GCP_REGIONS = frozenset(zone.rpartition("-")[0] for zone in GCP_ZONES)
"""All regions, from the same sources."""

NO_E2_ZONES = zone_set("us-central2 b")
"""TPU zones without the E2 family: https://github.com/keras-team/kinetic/issues/305"""
