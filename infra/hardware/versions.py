"""Versions of Kubernetes that GKE offers for new clusters, as documented in 2026-11. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

GKE_MINORS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"RAPID": (34, 37), "REGULAR": (34, 36), "STABLE": (34, 35), "EXTENDED": (31, 36)}
)
"""Release channel -> its oldest and its newest minor version: https://cloud.google.com/kubernetes-engine/docs/release-notes,
its table of current versions after the updates of September 2026."""


def minor_of(version: str) -> int:
    """34 of `1.34` and of `1.34.1-gke.100`."""
    return int(version.split(".")[1])


def unoffered(version: str, minors: tuple[int, int]) -> str | None:
    """Why a version is not among those from the oldest to the newest; None where it is."""
    oldest, newest = minors
    if oldest <= minor_of(version) <= newest:
        return None
    when = "no longer" if minor_of(version) < oldest else "not yet"
    return f"is {when} offered; write one of 1.{oldest} to 1.{newest}, in quotes"
