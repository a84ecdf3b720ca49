"""AWS regions and their zones, as documented in 2026-11. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_AREAS_WITH_ONE_REGION = (
    "af-south",
    "ca-central",
    "ca-west",
    "eu-north",
    "il-central",
    "me-central",
    "me-south",
    "mx-central",
    "sa-east",
)
_REGION_COUNTS = {
    "ap-east": 2,
    "ap-northeast": 3,
    "ap-south": 2,
    "ap-southeast": 7,
    "eu-central": 2,
    "eu-south": 2,
    "eu-west": 3,
    "us-east": 2,
    "us-west": 2,
}
_LETTERS = {
    "ap-northeast-1": "acdb",
    "ap-northeast-2": "abcd",
    "ca-central-1": "abd",
    "us-east-1": "abcdef",
    "us-west-1": "acb",
    "us-west-2": "abcd",
}
"""Zone letters of regions with letters other than a, b and c. Zones that exist in every account come first."""

ZONES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        region: tuple(f"{region}{letter}" for letter in _LETTERS.get(region, "abc"))
        for region in (
            *(f"{area}-1" for area in _AREAS_WITH_ONE_REGION),
            *(f"{area}-{number}" for area, count in _REGION_COUNTS.items() for number in range(1, count + 1)),
        )
    }
)
"""Zones of each public region, preferred zones first. Each account maps the letters to zones differently.

Government and China regions are not in the table.

https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html,
https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html
"""
ZONES_BY_ACCOUNT = ("us-west-1",)
"""Regions where each account has only some of the zones. The sources are those of `ZONES`."""
