"""Google Cloud zones of each accelerator, as documented in 2026-11. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _zones(text: str) -> frozenset[str]:
    """Parse a list of zones such as `region letter letter, region letter`."""
    rows = [row.split() for row in text.split(",")]
    return frozenset(f"{region}-{letter}" for region, *letters in rows for letter in letters)


TPU_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "v4": _zones("us-central2 b"),
        "v5e": _zones("europe-west4 b, us-central1 a, us-east5 a b c, us-south1 a, us-west1 c, us-west4 a"),
        "v5p": _zones("europe-west4 b, us-central1 a, us-east5 a b c, us-south1 a"),
        "v6e": _zones(
            "asia-northeast1 b, asia-south1 b c, asia-southeast1 b, europe-west4 a, southamerica-west1 a, "
            "us-central1 ai1 b, us-east1 d, us-east4 a b, us-east5 a b c, us-south1 a ai1b, us-west1 c"
        ),
        "v7x": _zones("us-central1 ai1a c"),
    }
)
"""Zones of each TPU generation, including single-tenant zones: https://cloud.google.com/tpu/docs/regions-zones"""

TPU_FLEX_START_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {"v5e": _zones("us-west4 a"), "v5p": _zones("us-east5 a"), "v6e": _zones("asia-northeast1 b, us-east5 a b")}
)
"""Zones with flex-start of each TPU generation. v4 and v7x have no flex-start.

https://cloud.google.com/kubernetes-engine/docs/concepts/dws
"""

GPU_ZONES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "nvidia-tesla-v100": _zones(
            "asia-east1 c, europe-west4 a b c, us-central1 a b c f, us-east1 b c, us-west1 a b"
        ),
        "nvidia-tesla-t4": _zones(
            "asia-east1 a c, asia-east2 a c, asia-northeast1 a c, asia-northeast3 b c, asia-south1 a b, "
            "asia-southeast1 a b c, asia-southeast2 a b, australia-southeast1 a c, europe-central2 b c, "
            "europe-west1 b c d, europe-west2 a b, europe-west3 b, europe-west4 a b c, me-west1 b c, "
            "northamerica-northeast1 c, southamerica-east1 a b c, us-central1 a b c f, us-east1 b c d, us-east4 a b c, "
            "us-west1 a b, us-west2 b c, us-west3 b, us-west4 a b"
        ),
        "nvidia-l4": _zones(
            "asia-east1 a b c, asia-northeast1 a b c, asia-northeast3 a b, asia-south1 a b c, asia-southeast1 a b c, "
            "europe-west1 b c, europe-west2 a b, europe-west3 a b, europe-west4 a b c, europe-west6 b c, "
            "me-central2 a c, northamerica-northeast1 b c, northamerica-northeast2 a b, us-central1 a b c, "
            "us-east1 b c d, us-east4 a c, us-west1 a b c, us-west4 a c"
        ),
        "nvidia-tesla-a100": _zones(
            "asia-northeast1 a c, asia-northeast3 a b, asia-southeast1 a b c, europe-west4 a b, me-west1 a c, "
            "us-central1 a b c f, us-east1 b, us-west1 b, us-west3 b, us-west4 b"
        ),
        "nvidia-a100-80gb": _zones("asia-southeast1 c, europe-west4 a, us-central1 a c, us-east4 c, us-east5 a b"),
        "nvidia-h100-80gb": _zones(
            "asia-east1 c, asia-northeast1 b, asia-south1 c, asia-south2 b, asia-southeast1 b c, "
            "australia-southeast1 c, europe-north1 c, europe-west1 b c, europe-west3 c, europe-west4 b c, "
            "europe-west8 c, europe-west9 c, us-central1 a b c, us-east4 a b c, us-east5 a, us-west1 a b, us-west4 a"
        ),
        "nvidia-h100-mega-80gb": _zones(
            "asia-east1 c, asia-northeast1 b, asia-southeast1 b c, australia-southeast1 c, europe-north1 c, "
            "europe-west1 b c, europe-west3 c, europe-west4 b c, us-central1 a b c, us-east4 a b c, us-east5 a, "
            "us-west1 a b, us-west4 a"
        ),
        "nvidia-h200-141gb": _zones(
            "asia-south1 b, asia-south2 c, europe-west1 b, europe-west4 a, us-central1 b, us-east4 b, us-east5 a, "
            "us-south1 b, us-west1 c"
        ),
        "nvidia-b200": _zones(
            "asia-northeast1 b, asia-southeast1 b, europe-north1 b, europe-west4 b, us-central1 b, us-east1 b, "
            "us-east4 b, us-south1 b, us-west2 c, us-west3 b c"
        ),
    }
)
"""Zones of each GPU model.

Source: https://cloud.google.com/compute/docs/gpus/gpu-regions-zones, limited to zones with a price in
https://github.com/skypilot-org/skypilot-catalog, catalogs/v8/gcp.
"""

_THREE = (
    "africa-south1 asia-east1 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1 asia-south2 "
    "asia-southeast1 asia-southeast2 asia-southeast3 australia-southeast1 australia-southeast2 europe-central2 "
    "europe-north1 europe-north2 europe-southwest1 europe-west2 europe-west3 europe-west4 europe-west6 europe-west8 "
    "europe-west9 europe-west10 europe-west12 me-central1 me-central2 me-west1 northamerica-northeast1 "
    "northamerica-northeast2 northamerica-south1 southamerica-east1 southamerica-west1 us-east4 us-east5 us-south1 "
    "us-west1 us-west2 us-west3 us-west4"
)
GCP_ZONES = frozenset[str]().union(
    _zones(", ".join(f"{region} a b c" for region in _THREE.split())),
    _zones("europe-west1 b c d, us-central1 a b c f, us-east1 b c d"),
    *TPU_ZONES.values(),
    *GPU_ZONES.values(),
)
"""All zones, including those with accelerators only: https://cloud.google.com/compute/docs/regions-zones"""
GCP_REGIONS = frozenset(zone.rpartition("-")[0] for zone in GCP_ZONES)
"""All regions, from the same sources."""

NO_E2_ZONES = _zones("us-central2 b")
"""TPU zones without the E2 family: https://github.com/keras-team/kinetic/issues/305"""
