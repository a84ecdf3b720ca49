"""What an update that died had begun to create: adopted where the cloud went on, forgotten where it did not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from commands.stack import pulumi
from infra.cloud_ids import known_id


def pending_creates(deployment: dict[str, Any]) -> list[tuple[str, str | None]]:
    """URN and, where it follows from the name, id of each resource whose creation was never answered."""
    operations = deployment.get("pending_operations") or []
    resources = [each["resource"] for each in operations if each["type"] == "creating"]
    return [(each["urn"], known_id(each["type"], each.get("inputs") or {})) for each in resources]


def adopt(deployment: dict[str, Any], refresh: Callable[..., bool]) -> list[str]:
    """Have the state know what the cloud has of them; returns the URNs of those that must be looked for by hand."""
    found = pending_creates(deployment)
    words = [
        word for urn, id_ in found if id_ for word in ("--import-pending-creates", urn, "--import-pending-creates", id_)
    ]
    if found and not refresh("refresh", "--yes", "--skip-preview", *words):
        raise RuntimeError("`pulumi refresh` failed: what the last update had begun is not adopted")
    return [urn for urn, id_ in found if not id_]


def adopt_pending(stack: str) -> None:
    """The same for a stack, before its next `up`."""

    def refresh(*words: str) -> bool:
        pulumi(*words, "--stack", stack)
        return True

    deployment = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))["deployment"]
    for urn in adopt(deployment, refresh):
        message = "creation was never answered, and only the cloud knows whether it is there: look for"
        print(f"stack {stack}: {message} {urn.rpartition('::')[2]}", file=sys.stderr)
