"""Kubernetes versions of EKS, with the end dates of AWS's support. Pure."""

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
"""Support of each minor version: https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html.

Source: aws-samples/sample-apex-skills, devops-agent/eks-upgrade-check/references/version-validation.md (June 2026).
"""

EKS_VERSIONS_CHECKED = date(2026, 11, 24)
"""Date of the last comparison with AWS's table."""

DEFAULT_EKS_VERSION = "1.36"
"""Newest version in standard support.

AWS has node images for it: awslabs/amazon-eks-ami 81fec2e, CHANGELOG.md:59-80 (AL2023 standard and NVIDIA, v20260714).
EKS chooses the versions of its add-ons. Only `aws eks describe-addon-versions` lists those for 1.36.
"""

STANDARD_PRICE, EXTENDED_PRICE = 0.10, 0.60
"""US dollars for each cluster and hour: https://aws.amazon.com/eks/pricing/"""


def unsupported(version: str, today: date) -> tuple[str, str] | None:
    """Return code and message if EKS does not support a version with upgrade policy STANDARD, else None.

    EKS upgrades such a cluster automatically when standard support ends:
    https://docs.aws.amazon.com/eks/latest/userguide/disable-extended-support.html
    """
    supported = [name for name, each in EKS_VERSIONS.items() if today <= each.standard_ends]
    if version in supported:
        return None
    remedy = f"write one of {', '.join(supported)}, in quotes" if supported else "update Trainyard, whose table is old"
    if version in EKS_VERSIONS:
        return (
            "standard_support_ended",
            f"left standard support on {EKS_VERSIONS[version].standard_ends}; extended support costs "
            f"{EXTENDED_PRICE:.2f} USD an hour per cluster instead of {STANDARD_PRICE:.2f}, and the upgrade policy of "
            f"Trainyard's clusters, STANDARD, excludes it; {remedy}",
        )
    if minor_of(version) < min(map(minor_of, EKS_VERSIONS)):
        return "no_longer_offered", f"is no longer offered; {remedy}"
    return "not_yet_offered", f"is not yet offered; {remedy}"
