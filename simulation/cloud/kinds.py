"""The kinds of all clouds, by type token, and a default kind for other types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from simulation.cloud.aws.kinds import KINDS as AWS
from simulation.cloud.gcp.kinds import KINDS as GCP
from simulation.cloud.kind import Autoname, Kind
from simulation.cloud.state import Properties


def digest(found: Properties) -> str:
    """Return a digest of the inputs, in place of the image's digest."""
    plain = {key: value for key, value in found.items() if not key.startswith("__")}
    return "sha256:" + hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def reference(found: Properties) -> str:
    """Return the image reference: the first tag and the digest."""
    return f"{(found.get('tags') or ['image'])[0]}@{digest(found)}"


BUILDS: Mapping[str, Kind] = {
    "docker-build:index:Image": Kind(
        type="docker-build:index:Image",
        id="{number}",
        outputs={"digest": digest, "ref": reference, "contextHash": digest},
        seconds=300,
        delete_seconds=1,
    )
}
"""Kinds of image builds, by type token."""


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
