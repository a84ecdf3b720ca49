"""AWS regions, their zones, and the regions of scarce instance types, as documented in 2026-11. Pure."""

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


def _regions(text: str) -> frozenset[str]:
    return frozenset(text.split())


INSTANCE_REGIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "p3dn": _regions("ap-northeast-1 eu-west-1 us-east-1 us-west-2"),
        "p4d": _regions(
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-2 ca-central-1 eu-central-1 eu-north-1 eu-west-1 "
            "eu-west-2 us-east-1 us-east-2 us-west-2"
        ),
        "p4de": _regions("ap-northeast-1 ap-southeast-1 eu-central-1 us-east-1 us-west-2"),
        "p5": _regions(
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-2 ap-southeast-3 ca-central-1 eu-north-1 eu-west-2 "
            "us-east-1 us-east-2 us-west-1 us-west-2"
        ),
        "p5e": _regions("ap-southeast-2 ap-southeast-3 eu-north-1 eu-west-2 us-east-2 us-west-2"),
        "p5en": _regions(
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-3 eu-north-1 eu-south-2 me-central-1 us-east-1 "
            "us-east-2 us-west-1 us-west-2"
        ),
        "p6-b200": _regions("us-east-1 us-east-2 us-west-2"),
    }
)
"""Regions of each instance family. Other families are in too many regions to list and are not checked.

Source: AWS's list of offers by region, in
https://github.com/skypilot-org/skypilot-catalog/blob/00148f2af3672e2229b4f7bf8157d5a3f36e3c35/catalogs/v8/aws/vms.csv
"""
