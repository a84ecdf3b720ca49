"""Pending creations of a dead update: adopt the resources that exist in the cloud, and drop the others."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from commands.environment import PROJECT
from commands.interrupts import CommandError, finish_first
from commands.stack import pulumi
from commands.verify_empty import ownership
from infra.cloud import ProvisionedCloud
from infra.inventory import CloudResource, Lister, known_id, run_json
from infra.naming import CLUSTER_LABEL
from stack.config import load_file

Find = Callable[[str, Mapping[str, Any], frozenset[str]], str | None]
"""Function of a type, inputs, and the ids in the state. Returns the id of a matching resource that is not in the state.

Returns None if the cloud has no such resource. Raises LookupError for a type that cannot be looked up.
"""
REPEATABLE_TYPES = ("pulumi", "docker-build:", "aws:ec2/defaultSecurityGroup:")
"""Prefixes of types for which a second creation adopts the result of the first."""


def pending_creates(deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each cloud resource whose creation got no answer, and which a second creation would not adopt."""
    operations = deployment.get("pending_operations") or []
    begun = [each["resource"] for each in operations if each["type"] == "creating"]
    # Components exist only in Pulumi, not in a cloud.
    return [each for each in begun if each.get("custom", True) and not each["type"].startswith(REPEATABLE_TYPES)]


def adopt(exported: Mapping[str, Any], run: Callable[..., bool], find: Find | None = None) -> list[str]:
    """Add pending resources that exist in the cloud to the state. Return the URNs that the user must look up.

    Each resource gets the id that follows from its name, or the id from `find`. A refresh then asks the cloud: it keeps
    resources that exist and drops the others. If `find` is None, resources without a derivable id are left to the user.
    Operations stay pending until the refresh is done, so that the next command repeats an interrupted adoption.
    """
    deployment = exported["deployment"]
    resources = list(deployment.get("resources") or [])
    operations = deployment.get("pending_operations") or []
    others = [each for each in operations if each["type"] != "creating"]
    if len(others) == len(operations):
        return []
    ids = {each["urn"]: each["id"] for each in resources if each.get("id")}
    adopted, unknown, refreshed = list[dict[str, Any]](), list[str](), set[str]()
    for each in pending_creates(deployment):
        inputs, urn = each.get("inputs") or {}, each["urn"]
        taken = frozenset(id_ for other, id_ in ids.items() if other != urn)
        try:
            id_ = known_id(each["type"], inputs) or (find or _find_nothing)(each["type"], inputs, taken)
        except LookupError:
            unknown.append(urn)
            continue
        if id_ and urn not in ids:
            adopted.append({**each, "custom": True, "id": id_, "outputs": inputs})
        if id_ and ids.get(urn, id_) == id_:
            refreshed.add(urn)  # If the state already has it, an earlier command did not finish its refresh.
        elif id_:
            unknown.append(urn)  # It replaces a resource that still exists.
    kept = [each for each in operations if each["type"] != "creating" or each["resource"]["urn"] in refreshed]
    edited = {**deployment, "resources": [*resources, *adopted], "pending_operations": kept}
    done = _import({**exported, "deployment": edited}, run)
    if done and refreshed:
        targets = [word for urn in sorted(refreshed) for word in ("--target", urn)]
        done = run("refresh", "--yes", "--skip-preview", *targets) and _forget_creates(run)
    if not done:
        raise CommandError("the resources that the last update began are not in the state: `pulumi refresh` failed")
    return unknown


def _import(exported: Mapping[str, Any], run: Callable[..., bool]) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(exported, file)
        file.flush()
        return run("stack", "import", "--file", file.name)


def _forget_creates(run: Callable[..., bool]) -> bool:
    """Remove the pending creations from the current state."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        if not run("stack", "export", "--file", file.name):
            return False
        exported = json.loads(Path(file.name).read_text(encoding="utf-8"))
    operations = exported["deployment"].get("pending_operations") or []
    exported["deployment"]["pending_operations"] = [each for each in operations if each["type"] != "creating"]
    return _import(exported, run)


def _find_nothing(type_: str, _inputs: Mapping[str, Any], _taken: frozenset[str]) -> str | None:
    raise LookupError(type_)


def find_in_cloud(cloud: ProvisionedCloud, lister: Lister) -> Find:
    """Return a Find that uses a cloud's listings.

    A resource with a `Name` tag matches by that tag and the cluster label, any other by all its known facts.
    """

    def find(type_: str, inputs: Mapping[str, Any], taken: frozenset[str]) -> str | None:
        listings = [each for each in cloud.lookups if type_ in each.types]
        if not listings:
            raise LookupError(type_)
        found = (each for listing in listings for each in lister(listing))
        return next((each.id for each in found if each.id not in taken and _matches(each, inputs, cloud.label)), None)

    return find


def _matches(found: CloudResource, inputs: Mapping[str, Any], label: str) -> bool:
    """Return True if the listed resource was created from these inputs."""
    if name := (inputs.get("tags") or {}).get("Name"):
        return found.labels.get("Name") == name and found.labels.get(CLUSTER_LABEL) == label
    known = {key: value for key, value in inputs.items() if key in found.facts and key != "region"}
    return bool(known) and all(found.facts[key] == value for key, value in known.items())


def adopt_pending(stack: str) -> None:
    """Adopt a stack's pending creations before its next `up` or `destroy`. Query AWS with the user's `aws` CLI."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    exported = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))
    if not exported["deployment"].get("pending_operations"):
        return

    def run(*words: str) -> bool:
        pulumi(*words, "--stack", stack)
        return True

    # Between import and refresh the state names resources that may not exist, and no operation is pending.
    with finish_first():
        try:
            unknown = adopt(exported, run, _finder_of(file))
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            print(f"stack {stack}: the resources of the interrupted update cannot be listed: {error}", file=sys.stderr)
            unknown = adopt(exported, run)
    for urn in unknown:
        name = urn.rpartition("::")[2]
        message = f"{name} may exist in the cloud without being in the state; look for it in the console and delete it"
        print(f"stack {stack}: {message}", file=sys.stderr)


def _finder_of(file: Path) -> Find | None:
    """Return a Find that queries the stack's cloud; None if the ids of its resources follow from their names."""
    cloud = load_file(file).cloud.provisioned if file.exists() else None
    if cloud is None or not cloud.lookups:
        return None
    return find_in_cloud(cloud, cloud.lister(ownership(cloud), run_json))
