"""Kubernetes versions that GKE offers for new clusters, and the end dates of standard support. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType

GKE_MINORS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"RAPID": (34, 37), "REGULAR": (34, 36), "STABLE": (34, 35), "EXTENDED": (31, 36)}
)
"""Oldest and newest minor version of each release channel.

Source: https://cloud.google.com/kubernetes-engine/docs/release-notes, table of current versions after the updates of
September 2026.
"""

GKE_STANDARD_ENDS: Mapping[int, date] = MappingProxyType(
    {31: date(2026, 1, 16), 32: date(2026, 4, 11), 33: date(2026, 8, 3), 34: date(2026, 10, 1), 35: date(2027, 4, 11)}
)
"""Estimated end date of GKE's standard support of each minor version.

https://cloud.google.com/kubernetes-engine/docs/release-schedule, as read in endoflife-date/endoflife.date,
products/google-kubernetes-engine.md at commit 00fa52a3d91f (February 2026). GKE's page could not be read.

The file has no dates of 1.36 and 1.37. GKE supports a version for 14 months after its release to the Regular channel
(https://cloud.google.com/kubernetes-engine/versioning).
"""

GKE_VERSIONS_CHECKED = date(2026, 11, 25)
"""Date of the last search for newer dates."""

EXTENDED = "EXTENDED"
"""Channel with about ten months of additional support, for a fee: https://cloud.google.com/kubernetes-engine/pricing"""


def minor_of(version: str) -> int:
    """Return the minor version: 34 for `1.34` and for `1.34.1-gke.100`."""
    return int(version.split(".")[1])


def unoffered(version: str, channel: str, today: date) -> tuple[str, str] | None:
    """Return code and message if a release channel does not offer a version for new clusters, else None."""
    oldest, newest = GKE_MINORS[channel]
    minor = minor_of(version)
    offered = [each for each in range(oldest, newest + 1) if channel == EXTENDED or is_in_standard_support(each, today)]
    if minor in offered:
        return None
    names = sorted({f"1.{offered[0]}", f"1.{offered[-1]}"}) if offered else []
    one = "one of " if len(names) > 1 else ""
    remedy = f"write {one}{' to '.join(names)}, in quotes" if names else "update Trainyard, whose table is old"
    if oldest <= minor <= newest:
        return (
            "standard_support_ended",
            f"left standard support on {GKE_STANDARD_ENDS[minor]} by GKE's estimate, and GKE then upgrades the "
            f"cluster; {remedy}, or release_channel: EXTENDED, which costs an additional fee per cluster and hour",
        )
    remedy += f", or another release_channel than {channel}"
    if minor < oldest:
        return "no_longer_offered", f"is no longer offered; {remedy}"
    return "not_yet_offered", f"is not yet offered; {remedy}"


def is_in_standard_support(minor: int, today: date) -> bool:
    """Return True unless the minor version's standard support is known to have ended."""
    ends = GKE_STANDARD_ENDS.get(minor)
    return ends is None or today <= ends
