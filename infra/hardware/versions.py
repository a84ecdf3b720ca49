"""Kubernetes versions of GKE and EKS, with the end dates of their support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

GKE_MINORS: Mapping[str, tuple[int, int]] = {
    "RAPID": (34, 37),
    "REGULAR": (34, 36),
    "STABLE": (34, 35),
    "EXTENDED": (31, 36),
}
"""Oldest and newest minor version of each release channel.

Source: https://cloud.google.com/kubernetes-engine/docs/release-notes, table of current versions after the updates of
September 2026.
"""

GKE_STANDARD_ENDS: Mapping[int, date] = {
    31: date(2026, 1, 16),
    32: date(2026, 4, 11),
    33: date(2026, 8, 3),
    34: date(2026, 10, 1),
    35: date(2027, 4, 11),
}
"""Estimated end date of GKE's standard support of each minor version.

Source: endoflife-date/endoflife.date, products/google-kubernetes-engine.md at commit 00fa52a3d91f (February 2026). It
copies https://cloud.google.com/kubernetes-engine/docs/release-schedule, which was unavailable.

The file has no dates for 1.36 and 1.37. GKE supports a version for 14 months after its release to the Regular channel
(https://cloud.google.com/kubernetes-engine/versioning).
"""

GKE_VERSIONS_CHECKED = date(2026, 11, 25)
"""Date of the last search for newer data about GKE's versions."""

EXTENDED_CHANNEL = "EXTENDED"
"""GKE's release channel with about ten months of additional support, for a fee:
https://cloud.google.com/kubernetes-engine/pricing"""


def minor_of(version: str) -> int:
    """Return the minor version: 34 for `1.34` and for `1.34.1-gke.100`."""
    return int(version.split(".")[1])


def gke_version_error(version: str, channel: str, today: date) -> tuple[str, str] | None:
    """Return code and message if a release channel does not offer a version for new clusters, else None."""
    oldest, newest = GKE_MINORS[channel]
    minor = minor_of(version)
    offered = [
        candidate
        for candidate in range(oldest, newest + 1)
        if channel == EXTENDED_CHANNEL or is_in_standard_support(candidate, today)
    ]
    if minor in offered:
        return None
    names = sorted({f"1.{offered[0]}", f"1.{offered[-1]}"}) if offered else []
    prefix = "a version from " if len(names) > 1 else ""
    remedy = f"write {prefix}{' to '.join(names)}, in quotes" if names else "update Trainyard, whose table is old"
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
    """Return False if the table says that the standard support of a minor version has ended, else True."""
    ends = GKE_STANDARD_ENDS.get(minor)
    return ends is None or today <= ends


def is_in_extended_support(version: str | None, channel: str, today: date) -> bool:
    """Return True if GKE charges the fee for extended support.

    The fee starts when standard support ends (https://cloud.google.com/kubernetes-engine/pricing). A channel's default
    version is in standard support.
    """
    return channel == EXTENDED_CHANNEL and version is not None and not is_in_standard_support(minor_of(version), today)


@dataclass(frozen=True, kw_only=True)
class EksSupport:
    """EKS's support of one minor version."""

    standard_ends: date
    """Last day of standard support."""
    extended_ends: date
    """Last day of extended support."""


EKS_VERSIONS: Mapping[str, EksSupport] = {
    "1.31": EksSupport(standard_ends=date(2025, 11, 26), extended_ends=date(2026, 11, 26)),
    "1.32": EksSupport(standard_ends=date(2026, 3, 23), extended_ends=date(2027, 3, 23)),
    "1.33": EksSupport(standard_ends=date(2026, 7, 29), extended_ends=date(2027, 7, 29)),
    "1.34": EksSupport(standard_ends=date(2026, 12, 2), extended_ends=date(2027, 12, 2)),
    "1.35": EksSupport(standard_ends=date(2027, 3, 27), extended_ends=date(2028, 3, 27)),
    "1.36": EksSupport(standard_ends=date(2027, 8, 2), extended_ends=date(2028, 8, 2)),
}
"""Support of each minor version: https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html.

Source: aws-samples/sample-apex-skills, devops-agent/eks-upgrade-check/references/version-validation.md (June 2026).
"""

EKS_VERSIONS_CHECKED = date(2026, 11, 24)
"""Date of the last comparison with AWS's table."""

DEFAULT_EKS_VERSION = "1.36"
"""Newest version in standard support.

AWS has node images for it: awslabs/amazon-eks-ami 81fec2e, CHANGELOG.md:59-80 (AL2023 standard and NVIDIA, v20260714).
EKS chooses the versions of its add-ons. Only `aws eks describe-addon-versions` lists the add-on versions for 1.36.
"""

EKS_STANDARD_PRICE, EKS_EXTENDED_PRICE = 0.10, 0.60
"""US dollars for each EKS cluster and hour: https://aws.amazon.com/eks/pricing/"""


def eks_version_error(version: str, today: date) -> tuple[str, str] | None:
    """Return code and message if EKS does not support a version with upgrade policy STANDARD, else None.

    EKS upgrades such a cluster automatically when standard support ends:
    https://docs.aws.amazon.com/eks/latest/userguide/disable-extended-support.html
    """
    supported = [name for name, support in EKS_VERSIONS.items() if today <= support.standard_ends]
    if version in supported:
        return None
    remedy = f"write one of {', '.join(supported)}, in quotes" if supported else "update Trainyard, whose table is old"
    if version in EKS_VERSIONS:
        return (
            "standard_support_ended",
            f"left standard support on {EKS_VERSIONS[version].standard_ends}; extended support costs "
            f"{EKS_EXTENDED_PRICE:.2f} USD an hour per cluster instead of {EKS_STANDARD_PRICE:.2f}, and the upgrade "
            f"policy of Trainyard's clusters, STANDARD, excludes it; {remedy}",
        )
    if minor_of(version) < min(map(minor_of, EKS_VERSIONS)):
        return "no_longer_offered", f"is no longer offered; {remedy}"
    return "not_yet_offered", f"is not yet offered; {remedy}"
