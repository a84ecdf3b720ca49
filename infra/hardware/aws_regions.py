"""AWS regions and their zones, as documented in 2026-11. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_ONE = (
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
_SEVERAL = {
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
"""Zone letters of regions with letters other than a, b and c. Zones that every account has come first."""

ZONES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        region: tuple(f"{region}{letter}" for letter in _LETTERS.get(region, "abc"))
        for region in (
            *(f"{place}-1" for place in _ONE),
            *(f"{place}-{number}" for place, numbers in _SEVERAL.items() for number in range(1, numbers + 1)),
        )
    }
)
"""Zones of each public region, by an account's own letters, preferred zones first.

Names of government and China regions have other prefixes.

https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html,
https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html
"""
ZONES_BY_ACCOUNT = ("us-west-1",)
"""Regions where each account has only some zones, which differ by account. The sources are those of `ZONES`."""
