"""Quota: an amount of one quota that a cloud platform needs before anything is created. No Pulumi."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quota:
    """An amount of one quota."""

    name: str
    """Name of the quota in the cloud, followed by its dimensions."""
    location: str
    """Region of the quota; `global` for all regions."""
    amount: int
    """Maximum amount that the platform needs."""
    source: str
    """Page where the cloud documents it."""


QuotaNeeds = Counter[tuple[str, str, str]]
"""Amount by name, scope (`global` or empty) and source."""


def quotas(needs: QuotaNeeds, region: str) -> tuple[Quota, ...]:
    """Return the quotas of a region and the global ones, sorted by name."""
    return tuple(
        Quota(name=name, location=scope or region, amount=amount, source=source)
        for (name, scope, source), amount in sorted(needs.items())
    )
