"""The kinds of all clouds by type token, and what stands for a type that no cloud describes."""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.cloud.aws.kinds import KINDS as AWS
from rehearsal.cloud.builds import KINDS as BUILDS
from rehearsal.cloud.gcp.kinds import KINDS as GCP
from rehearsal.cloud.kind import Autoname, Kind

KINDS: Mapping[str, Kind] = {**GCP, **AWS, **BUILDS}
"""Every kind with rules of its own."""


def kind_of(token: str) -> Kind:
    """The kind of a type; a type without rules is held to its SDK's classes alone."""
    return KINDS.get(token) or Kind(
        type=token, id=f"{token.rpartition(':')[2].lower()}/{{number}}", autoname=Autoname()
    )


def has_rules(token: str) -> bool:
    """Whether the rehearsal knows more of a type than what its SDK says."""
    return token in KINDS
