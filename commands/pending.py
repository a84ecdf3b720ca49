"""What an update that died had begun to create: adopted where the cloud went on, forgotten where it did not."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from commands.stack import pulumi
from infra.cloud_ids import known_id


def pending_creates(deployment: dict[str, Any]) -> list[tuple[dict[str, Any], str | None]]:
    """Each resource whose creation was never answered and, where it follows from the name, its id."""
    operations = deployment.get("pending_operations") or []
    resources = [each["resource"] for each in operations if each["type"] == "creating"]
    return [(each, known_id(each["type"], each.get("inputs") or {})) for each in resources]


def adopt(exported: dict[str, Any], run: Callable[..., bool]) -> list[str]:
    """Have the state know what the cloud has of them; returns the URNs of those that must be looked for by hand.

    Each is put into the state under its id, and a refresh asks the cloud: what is there stays, what is not goes.
    """
    deployment = exported["deployment"]
    found = pending_creates(deployment)
    if not found:
        return []
    adopted = [
        {**resource, "custom": True, "id": id_, "outputs": resource.get("inputs") or {}}
        for resource, id_ in found
        if id_
    ]
    resources = [*(deployment.get("resources") or []), *adopted]
    others = [each for each in deployment["pending_operations"] if each["type"] != "creating"]
    edited = {**exported, "deployment": {**deployment, "resources": resources, "pending_operations": others}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(edited, file)
        file.flush()
        done = run("stack", "import", "--file", file.name)
    targets = [word for each in adopted for word in ("--target", each["urn"])]
    if done and targets:
        done = run("refresh", "--yes", "--skip-preview", *targets)
    if not done:
        raise RuntimeError("what the last update had begun is not adopted: `pulumi refresh` failed")
    return [resource["urn"] for resource, id_ in found if not id_]


def adopt_pending(stack: str) -> None:
    """The same for a stack, before its next `up`."""

    def run(*words: str) -> bool:
        pulumi(*words, "--stack", stack)
        return True

    exported = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))
    for urn in adopt(exported, run):
        message = "creation was never answered, and only the cloud knows whether it is there: look for"
        print(f"stack {stack}: {message} {urn.rpartition('::')[2]}", file=sys.stderr)
