"""The kinds of all clouds, by type token, and a default kind for other types."""

from __future__ import annotations

from collections.abc import Mapping

from simulation.cloud.aws.kinds import KINDS as AWS
from simulation.cloud.builds import KINDS as BUILDS
from simulation.cloud.gcp.kinds import KINDS as GCP
from simulation.cloud.kind import Autoname, Kind

KINDS: Mapping[str, Kind] = {**GCP, **AWS, **BUILDS}
"""Kinds with rules, by type token."""


def kind_of(token: str) -> Kind:
    """Return the kind of a type. A type without rules gets a default kind."""
    return KINDS.get(token) or Kind(
        type=token, id=f"{token.rpartition(':')[2].lower()}/{{number}}", autoname=Autoname()
    )


def has_rules(token: str) -> bool:
    """Return True if the rehearsal has more rules for a type than its SDK's classes."""
    return token in KINDS
