"""Kinds of all clouds, by type token, with the simulated builds of images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from simulation.cloud.aws import KINDS as AWS
from simulation.cloud.gcp import KINDS as GCP
from simulation.cloud.kind import Autoname, Kind
from simulation.cloud.state import Properties, without_internal


def _input_digest(found: Properties) -> str:
    """Return a digest of the inputs, in place of the image's digest."""
    text = json.dumps(without_internal(found), sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _image_reference(found: Properties) -> str:
    """Return the image reference: the first tag and the digest."""
    return f"{(found.get('tags') or ['image'])[0]}@{_input_digest(found)}"


IMAGE = Kind(
    type="docker-build:index:Image",
    id="{number}",
    outputs={"digest": _input_digest, "ref": _image_reference, "contextHash": _input_digest},
    seconds=300,
    delete_seconds=1,
)
"""Simulated image build, which neither builds nor pushes."""
KINDS: Mapping[str, Kind] = {**GCP, **AWS, IMAGE.type: IMAGE}
"""Kinds of resources, by type token."""


def kind_of(token: str) -> Kind:
    """Return the kind of a type, or a default kind for an unknown type."""
    return KINDS.get(token) or Kind(
        type=token, id=f"{token.rpartition(':')[2].lower()}/{{number}}", autoname=Autoname()
    )


def is_known_type(token: str) -> bool:
    """Return True if the simulated clouds have a kind for a type."""
    return token in KINDS
