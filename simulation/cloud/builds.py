"""Simulated image builds: they build and push nothing, and return a digest of their inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from simulation.cloud.kind import Kind
from simulation.cloud.state import Properties


def digest(found: Properties) -> str:
    """Return a digest of the inputs, in place of the image's digest."""
    plain = {key: value for key, value in found.items() if not key.startswith("__")}
    return "sha256:" + hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def reference(found: Properties) -> str:
    """Return the image reference: the first tag and the digest."""
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
"""Kinds of image builds, by type token."""
