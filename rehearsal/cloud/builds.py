"""Image builds, simulated: nothing is built or pushed; the reference has a digest of the inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from rehearsal.cloud.kind import Kind
from rehearsal.cloud.state import Properties


def digest(found: Properties) -> str:
    """A digest that stands for the image's own: equal inputs, equal digest."""
    plain = {key: value for key, value in found.items() if not key.startswith("__")}
    return "sha256:" + hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def reference(found: Properties) -> str:
    """First tag and digest."""
    return f"{(found.get('tags') or ['image'])[0]}@{digest(found)}"


KINDS: Mapping[str, Kind] = {
    "docker-build:index:Image": Kind(
        type="docker-build:index:Image",
        id="{number}",
        outputs={"digest": digest, "ref": reference, "contextHash": digest},
        seconds=300,
        delete_seconds=1,
    )
}
"""Kinds of builds."""
