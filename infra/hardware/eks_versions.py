"""Versions of Kubernetes on EKS, with the dates when AWS's support of them ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from infra.hardware.versions import minor_of


@dataclass(frozen=True, kw_only=True)
class EksSupport:
    """Support of one minor version."""

    standard_ends: date
    """Last day of standard support."""
    extended_ends: date
    """Last day of extended support."""


EKS_VERSIONS: Mapping[str, EksSupport] = MappingProxyType(
    {
        "1.31": EksSupport(standard_ends=date(2025, 11, 26), extended_ends=date(2026, 11, 26)),
        "1.32": EksSupport(standard_ends=date(2026, 3, 23), extended_ends=date(2027, 3, 23)),
        "1.33": EksSupport(standard_ends=date(2026, 7, 29), extended_ends=date(2027, 7, 29)),
        "1.34": EksSupport(standard_ends=date(2026, 12, 2), extended_ends=date(2027, 12, 2)),
        "1.35": EksSupport(standard_ends=date(2027, 3, 27), extended_ends=date(2028, 3, 27)),
        "1.36": EksSupport(standard_ends=date(2027, 8, 2), extended_ends=date(2028, 8, 2)),
    }
)
"""Minor version -> its support: https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html, as read in
aws-samples/sample-apex-skills, devops-agent/eks-upgrade-check/references/version-validation.md (June 2026).
"""

EKS_VERSIONS_CHECKED = date(2026, 11, 24)
"""Day of the last comparison with AWS's table."""

DEFAULT_EKS_VERSION = "1.36"
"""Newest version in standard support.

AWS has node images for it: awslabs/amazon-eks-ami 81fec2e, CHANGELOG.md:59-80 (AL2023 standard and NVIDIA, v20260714).
EKS chooses the versions of its add-ons. Which it offers for 1.36 only `aws eks describe-addon-versions` tells.
"""

STANDARD_PRICE, EXTENDED_PRICE = 0.10, 0.60
"""US dollars per cluster and hour: https://aws.amazon.com/eks/pricing/"""


def unsupported(version: str, today: date) -> str | None:
    """Return what is wrong with a version for a cluster with upgrade policy STANDARD, else None.

    EKS upgrades such a cluster by itself when standard support ends:
    https://docs.aws.amazon.com/eks/latest/userguide/disable-extended-support.html
    """
    supported = [name for name, each in EKS_VERSIONS.items() if today <= each.standard_ends]
    if version in supported:
        return None
    remedy = f"write one of {', '.join(supported)}, in quotes" if supported else "update Trainyard, whose table is old"
    if version in EKS_VERSIONS:
        return (
            f"left standard support on {EKS_VERSIONS[version].standard_ends}; extended support costs "
            f"{EXTENDED_PRICE:.2f} USD an hour per cluster instead of {STANDARD_PRICE:.2f}, and the upgrade policy of "
            f"Trainyard's clusters, STANDARD, excludes it; {remedy}"
        )
    when = "no longer" if minor_of(version) < min(map(minor_of, EKS_VERSIONS)) else "not yet"
    return f"is {when} offered; {remedy}"
