"""List a cloud stack's resources in the cloud: leftovers after a destroy, pending and failed creations.

`make verify-empty` writes a list of the leftovers, the receipt. The exit status is 1 if the list is not empty. For a
stack without a cloud, the list has the leftovers on this machine. Not yet tested with a cloud account.

A creation is pending if Pulumi died before it got the result. Before the next command, `adopt_pending` adds the
created resource to the state.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from commands.environment import PROJECT, STATE
from commands.interrupts import CommandError, finish_before_stopping
from commands.review.recorded import Record, run
from commands.stack import pulumi
from infra.cloud import Cloud, ProvisionedCloud
from infra.inventory import CloudResource, Lister, Listing, Ownership, known_id, run_json
from infra.local import lifecycle
from infra.local.settings import stack_cluster
from infra.make_command import command_title, make_command
from infra.naming import CLUSTER_LABEL
from simulation.cloud.model import SimulatedResource, read_state
from stack.config import load_file

NAME_KEYS = ("name", "bucket", "repositoryId", "member")
"""Inputs that can have a resource's name. The cloud's listing shows the value of the first input that is set."""
RANDOM_SUFFIX = "-[0-9a-f]{7}"
"""Suffix that Pulumi adds to generated names: https://www.pulumi.com/docs/iac/concepts/resources/names/"""
NETWORKS = ("network", "VPC")
"""Kinds of networks. Every resource in a stack's network belongs to the stack."""


def simulated(folder: Path) -> Lister:
    """Return a Lister of the simulated clouds whose state is in a folder."""

    def rows(listing: Listing) -> Iterator[CloudResource]:
        for record in read_state(folder).of_type(*listing.types):
            inputs = record.inputs
            labels = {key: inputs.get(key) or {} for key in ("tags", "labels", "resourceLabels")}
            yield CloudResource(
                kind=listing.kind,
                name=_listed_name(record),
                labels={name: str(value) for each in labels.values() for name, value in each.items()},
                id=record.id,
                facts={key: value for key, value in inputs.items() if isinstance(value, str)},
            )

    return rows


def _listed_name(record: SimulatedResource) -> str:
    """Return the name that a real cloud's listing would show."""
    for key in ("email", "member", "name", "bucket", "repositoryId"):
        if isinstance(record.outputs.get(key), str):
            return str(record.outputs[key])
    return record.id


def ownership(cloud: ProvisionedCloud) -> Ownership:
    """Return the labels and names by which a cloud's listing shows the resources of a stack."""
    names: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    shared: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    kinds = {type_: listing.kind for listing in cloud.listings for type_ in listing.types}
    records = run(cloud.declare).records
    for record in (each for each in records if each.type in kinds):
        known = _name_pattern(record)
        # Do not identify a labelled resource by its name: a repository of another owner may have the same name.
        is_unique = "labels" not in record.inputs if known else record.name.startswith(f"{cloud.cluster_name}-")
        patterns = names if is_unique else shared
        patterns[kinds[record.type]].append(re.compile(known or re.escape(record.name) + RANDOM_SUFFIX))
    for kind, pattern in cloud.generated_names(records).items():
        names[kind].append(re.compile(pattern))
    return Ownership(cluster=cloud.cluster_name, label=cloud.label, names=names, shared_names=shared)


def _name_pattern(record: Record) -> str:
    """Return a pattern of the name in the cloud's listing; empty if Pulumi generates the name."""
    inputs = record.inputs
    if "accountId" in inputs:
        return re.escape(f"{inputs['accountId']}@{inputs['project']}.iam.gserviceaccount.com")
    for key in NAME_KEYS:
        if inputs.get(key):
            member = rf"(deleted:)?{re.escape(inputs[key])}(\?uid=\d+)?"
            return member if key == "member" else re.escape(inputs[key])
    return ""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Result of a search for a stack's leftovers."""

    stack: str
    source: str
    """Source of the listing: `gcloud`, `aws`, `simulated` or `this machine`."""
    at: str = field(default_factory=lambda: datetime.now(tz=UTC).isoformat(timespec="seconds"))
    looked_at: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of resources in its listing, including those of other stacks."""
    left: tuple[str, ...] = ()
    """Kind and name of each leftover."""
    kept: tuple[str, ...] = ()
    """Kind and name of each bucket that the stack keeps. Each costs money until the user deletes it."""

    @property
    def empty(self) -> bool:
        """True if the stack has no leftovers."""
        return not self.left

    def to_json(self) -> str:
        """Return the receipt as indented JSON."""
        return json.dumps({**asdict(self), "empty": self.empty}, indent=2)


def verify(stack: str, cloud: ProvisionedCloud, source: str, lister: Lister, owner: Ownership) -> Receipt:
    """List the resources of every kind. Return a receipt of those that belong to the stack."""
    looked_at: dict[str, int] = {}
    left: list[str] = []
    kept: list[str] = []
    networks: set[str] = set()
    for listing in cloud.listings:
        found = list(lister(listing))
        looked_at[listing.kind] = len(found)
        for each in found:
            if owner.has(each, networks):
                if each.kind in NETWORKS:
                    networks.add(each.id)
                stays = each.kind == "bucket" and cloud.keeps_bucket
                (kept if stays else left).append(f"{each.kind} {each.name}")
    return Receipt(stack=stack, source=source, looked_at=looked_at, left=tuple(sorted(left)), kept=tuple(sorted(kept)))


def receipt_of(stack: str, folder: Path | None) -> Receipt:
    """Return a stack's receipt. With `folder`, query the simulated clouds whose state is there, else the real cloud.

    Accept locations, versions and machine types that the cloud no longer offers: the stack is already destroyed. Raises
    ValueError for other invalid settings, FileNotFoundError if the cloud's command is missing, and CalledProcessError
    if it fails.
    """
    if cloud := load_file(PROJECT / f"Pulumi.{stack}.yaml", checks_availability=False).cloud.provisioned:
        owner = ownership(cloud)
        if folder is not None:
            return verify(stack, cloud, "simulated", simulated(folder), owner)
        return verify(stack, cloud, cloud.command, cloud.lister(owner, run_json), owner)
    left = lifecycle.find_leftovers(stack_cluster(str(PROJECT), stack))
    return Receipt(stack=stack, source="this machine", left=tuple(left))


def main(stack: str, *, simulation_folder: Path | None = None) -> int:
    """Write and print the receipt. Return 0 for no leftovers, 1 for leftovers, 2 for an error.

    With `simulation_folder`, query the simulated clouds whose state is there, else the real cloud.
    """
    try:
        receipt = receipt_of(stack, simulation_folder)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except FileNotFoundError as error:
        problem = f"{error.filename} is not installed, so the cloud cannot be queried; install it and log in"
        print(f"{command_title('verify-empty')}: {problem}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        reason = " ".join(error.stderr.split())
        problem = f"`{' '.join(error.cmd)}` failed: {reason}; check your login and your permissions"
        print(f"{command_title('verify-empty')}: {problem}", file=sys.stderr)
        return 2
    file = STATE / "receipts" / f"{stack}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(receipt.to_json(), encoding="utf-8")
    print(receipt.to_json())
    return 0 if receipt.empty else 1


FindId = Callable[[str, Mapping[str, Any], frozenset[str]], str | None]
"""Function that returns the cloud's id of the resource with the given type and inputs, or None if there is none.

The third argument has the ids in the state. The function ignores resources with these ids. It raises LookupError for a
type that the cloud cannot look up.
"""
REPEATABLE_TYPES = ("pulumi", "docker-build:", "aws:ec2/defaultSecurityGroup:")
"""Prefixes of types whose creation can be repeated: a second creation returns the existing resource."""


def pending_creates(deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the resources with a pending creation, except components and REPEATABLE_TYPES."""
    operations = deployment.get("pending_operations") or []
    begun = [each["resource"] for each in operations if each["type"] == "creating"]
    # Components exist only in Pulumi, not in a cloud.
    return [each for each in begun if each.get("custom", True) and not each["type"].startswith(REPEATABLE_TYPES)]


def adopt(
    exported: Mapping[str, Any],
    run: Callable[..., bool],
    find_id: FindId | None = None,
    before_import: Callable[[], None] = lambda: None,
) -> list[str]:
    """Add resources with a pending creation to the state. Return the URNs of those whose ids are unknown.

    A resource's id follows from its name, or `find_id` returns it. A refresh then removes the resources that do not
    exist in the cloud. `before_import` must save the pending creations, so that the caller can repeat an interrupted
    adoption: the import removes all pending operations from the state (SaveSnapshot in Pulumi's pkg/cmd/pulumi/stack;
    checked with CLI 3.274.1).
    """
    deployment = exported["deployment"]
    resources = list(deployment.get("resources") or [])
    operations = deployment.get("pending_operations") or []
    if not any(each["type"] == "creating" for each in operations):
        return []
    ids = {each["urn"]: each["id"] for each in resources if each.get("id")}
    known = {each["urn"] for each in resources} | {f"{urn}::{id_}" for urn, id_ in ids.items()}
    adopted, unknown, refreshed = list[dict[str, Any]](), list[str](), list[str]()
    for each in pending_creates(deployment):
        inputs, urn = each.get("inputs") or {}, each["urn"]
        try:
            lookup = find_id or _reject_lookup
            id_ = _named_id(each) or lookup(each["type"], inputs, frozenset(ids.values()))
        except LookupError:
            unknown.append(urn)
            continue
        if urn in ids and id_ in (None, ids[urn]):
            refreshed.append(urn)  # The refresh of an earlier adoption may not have finished.
        elif id_ and (urn in ids or not _references(each) <= known):
            unknown.append(urn)  # The state has another resource with this URN, or `destroy` has removed the provider.
        elif id_:
            adopted.append({**each, "custom": True, "id": id_, "outputs": inputs})
            refreshed.append(urn)
    before_import()
    edited = {**deployment, "resources": [*resources, *adopted], "pending_operations": []}
    done = _import({**exported, "deployment": edited}, run)
    if done and refreshed:
        targets = [word for urn in sorted(refreshed) for word in ("--target", urn)]
        done = run("refresh", "--yes", "--skip-preview", *targets)
    if not done:
        raise CommandError(
            "the resources of the interrupted update could not be added to the state: `pulumi stack import` or "
            "`refresh` failed; run the command again"
        )
    return unknown


def _named_id(resource: Mapping[str, Any]) -> str | None:
    """Return a resource's id if it follows from the resource's name, else None."""
    return known_id(resource["type"], resource.get("inputs") or {})


def _references(resource: Mapping[str, Any]) -> set[str]:
    """Return the references of a resource that the state must already contain: URNs, and the provider's URN and id."""
    found = (resource.get("provider"), resource.get("parent"), *(resource.get("dependencies") or ()))
    return {each for each in found if each}


def _import(exported: Mapping[str, Any], run: Callable[..., bool]) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(exported, file)
        file.flush()
        return run("stack", "import", "--file", file.name)


def _reject_lookup(type_: str, _inputs: Mapping[str, Any], _taken: frozenset[str]) -> str | None:
    raise LookupError(type_)


def id_finder(cloud: ProvisionedCloud, lister: Lister) -> FindId:
    """Return a FindId that searches a cloud's listings.

    It compares the `Name` tag and the cluster's label. For inputs without that tag, it compares all inputs
    that the listing shows, except the region.
    """

    def find_id(type_: str, inputs: Mapping[str, Any], taken: frozenset[str]) -> str | None:
        listings = [each for each in cloud.lookups if type_ in each.types]
        if not listings:
            raise LookupError(type_)
        found = (each for listing in listings for each in lister(listing))
        return next((each.id for each in found if each.id not in taken and _matches(each, inputs, cloud.label)), None)

    return find_id


def _matches(found: CloudResource, inputs: Mapping[str, Any], label: str) -> bool:
    """Return True if the listed resource was created from these inputs."""
    if name := (inputs.get("tags") or {}).get("Name"):
        return found.labels.get("Name") == name and found.labels.get(CLUSTER_LABEL) == label
    known = {key: value for key, value in inputs.items() if key in found.facts and key != "region"}
    return bool(known) and all(found.facts[key] == value for key, value in known.items())


def adopt_pending(stack: str) -> None:
    """Adopt a stack's pending creations. Call this before each `up` and `destroy`. May query AWS with the `aws` CLI.

    A file keeps each creation until this function has adopted or reported the resource. If the listing fails, the
    creations that need it stay in the file for the next call.
    """
    exported, file = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True)), pending_file(stack)
    creates = _begun_creates(exported["deployment"] or {}, file)
    if not creates or not exported["deployment"]:
        return

    def run(*words: str) -> bool:
        pulumi(*words, "--stack", stack, quiet=words[0] == "stack")
        return True

    def adopt_some(some: Sequence[Mapping[str, Any]], find_id: FindId | None = None) -> list[str]:
        deployment = {**exported["deployment"], "pending_operations": some}
        return adopt({**exported, "deployment": deployment}, run, find_id, lambda: _save_creates(creates, file))

    problem, later = f"stack {stack}: the resources of the interrupted update cannot be listed", list[Any]()
    # Do not stop between import and refresh: the state then contains resources that may not exist.
    with finish_before_stopping():
        try:
            unknown = adopt_some(creates, _stack_id_finder(PROJECT / f"Pulumi.{stack}.yaml"))
        except ValueError as error:
            print(f"{problem}: {error}", file=sys.stderr)
            unknown = adopt_some(creates)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            up, down = make_command("up", STACK=stack), make_command("down", STACK=stack)
            print(f"{problem}: {error}; the next {up} or {down} looks for them again", file=sys.stderr)
            later = [each for each in creates if not _named_id(each["resource"])]
            unknown = adopt_some([each for each in creates if each not in later])
    for urn in unknown:
        name = urn.rpartition("::")[2]
        message = f"{name} may exist in the cloud without being in the state; look for it in the console and delete it"
        print(f"stack {stack}: {message}", file=sys.stderr)
    _save_creates(later, file)


def pending_file(stack: str) -> Path:
    """Return the file with the pending creations of a stack that are not adopted yet."""
    return STATE / "pending" / f"{stack}.json"


def _begun_creates(deployment: Mapping[str, Any], file: Path) -> list[dict[str, Any]]:
    """Return the pending creations in a state, and those in the file that the state no longer has."""
    found = [each for each in deployment.get("pending_operations") or [] if each["type"] == "creating"]
    saved = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    urns = {each["resource"]["urn"] for each in found}
    return [*found, *(each for each in saved if each["resource"]["urn"] not in urns)]


def _save_creates(creates: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write pending creations to the file, or delete the file if there are none."""
    if not creates:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(creates), encoding="utf-8")
    draft.replace(file)


def refresh_stale(
    cloud: Cloud, export: Callable[[], Mapping[str, Any]], run: Callable[..., object]
) -> Mapping[str, Any]:
    """Refresh the resources that may have changed in the cloud. Return the deployment in the state.

    `export` returns the deployment, and `run` runs a Pulumi command.
    """
    deployment = export()
    urns = cloud.stale_resources(deployment)
    if not urns:
        return deployment
    run("refresh", "--yes", "--skip-preview", *(word for urn in urns for word in ("--target", urn)))
    return export()


def replace_options(cloud: Cloud, deployment: Mapping[str, Any]) -> list[str]:
    """Return the options of `pulumi up` that replace the resources that the cloud could not create."""
    return [word for urn in cloud.failed_resources(deployment) for word in ("--replace", urn)]


def _stack_id_finder(file: Path) -> FindId | None:
    """Return a FindId for the cloud of a stack's file; None if the ids of its resources follow from their names."""
    cloud = load_file(file).cloud.provisioned if file.exists() else None
    if cloud is None or not cloud.lookups:
        return None
    return id_finder(cloud, cloud.lister(ownership(cloud), run_json))
