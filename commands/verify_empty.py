"""`make verify-empty`: list a destroyed stack's leftovers by the cloud's own listing, and write a receipt.

Exits with 1 if there are any. --simulated queries the simulated clouds of a rehearsal. The real `gcloud` and `aws`
accept the arguments of every listing. On moto, a server that simulates AWS, the listing tells two stacks apart. Not yet
tested with a cloud account.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from commands.environment import PROJECT, STATE
from commands.review.recorded import Record, run
from infra.cloud import ProvisionedCloud
from infra.inventory import CloudResource, Lister, Listing, Ownership, run_json
from infra.local import lifecycle
from infra.local.settings import stack_cluster
from infra.make_command import command_title
from simulation.cloud.state import Record as CloudRecord
from simulation.cloud.state import read_state
from stack.config import load_file

NAME_KEYS = ("name", "bucket", "repositoryId", "member")
"""Inputs that name a resource in the cloud's listing."""
RANDOM_SUFFIX = "-[0-9a-f]{7}"
"""Suffix that Pulumi adds to generated names: https://www.pulumi.com/docs/iac/concepts/resources/names/"""
NETWORKS = ("network", "VPC")
"""Kinds of which the stack has its own. Every resource in one belongs to the stack."""


def simulated(folder: Path) -> Lister:
    """Return a client for the simulated clouds whose state is in a folder."""

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


def _listed_name(record: CloudRecord) -> str:
    """Return the name that the cloud's listing would show."""
    for key in ("email", "member", "name", "bucket", "repositoryId"):
        if isinstance(record.outputs.get(key), str):
            return str(record.outputs[key])
    return record.id


def ownership(cloud: ProvisionedCloud) -> Ownership:
    """Return the labels and names of the resources that the program creates in a cloud."""
    names: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    shared: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    kinds = {type_: listing.kind for listing in cloud.listings for type_ in listing.types}
    records = run(cloud.declare).records
    for record in (each for each in records if each.type in kinds):
        known = _known_name(record)
        # If a label could identify it, a user-chosen name proves nothing: others may have a repository `gcr.io` too.
        is_proof = "labels" not in record.inputs if known else record.name.startswith(f"{cloud.cluster_name}-")
        patterns = names if is_proof else shared
        patterns[kinds[record.type]].append(re.compile(known or re.escape(record.name) + RANDOM_SUFFIX))
    for kind, pattern in cloud.generated_names(records).items():
        names[kind].append(re.compile(pattern))
    return Ownership(cluster=cloud.cluster_name, label=cloud.label, names=names, shared_names=shared)


def _known_name(record: Record) -> str:
    """Return a pattern of the resource's name; empty if Pulumi generates the name."""
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
    """Inventory of a stack: the kinds queried and the stack's leftovers."""

    stack: str
    source: str
    """Source of the listing: `gcloud`, `aws`, `simulated` or `this machine`."""
    at: str
    """Time of the inventory."""
    looked_at: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of resources, including those of others."""
    left: tuple[str, ...] = ()
    """Leftovers of the stack."""
    kept: tuple[str, ...] = ()
    """Buckets that stay because of the settings. They continue to cost."""

    @property
    def empty(self) -> bool:
        """True if the stack has no leftovers."""
        return not self.left

    def to_json(self) -> str:
        """Return the receipt as it is written."""
        return json.dumps({**asdict(self), "empty": self.empty}, indent=2)


def verify(stack: str, cloud: ProvisionedCloud, source: str, lister: Lister, mine: Ownership) -> Receipt:
    """List every kind of a cloud and find the resources that belong to `mine`."""
    looked_at: dict[str, int] = {}
    left: list[str] = []
    kept: list[str] = []
    networks: set[str] = set()
    for listing in cloud.listings:
        found = list(lister(listing))
        looked_at[listing.kind] = len(found)
        for each in found:
            if mine.has(each, networks):
                if each.kind in NETWORKS:
                    networks.add(each.id)
                stays = each.kind == "bucket" and cloud.keeps_bucket
                (kept if stays else left).append(f"{each.kind} {each.name}")
    return Receipt(
        stack=stack,
        source=source,
        at=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        looked_at=looked_at,
        left=tuple(sorted(left)),
        kept=tuple(sorted(kept)),
    )


def receipt_of(stack: str, folder: Path | None) -> Receipt:
    """Return the receipt of a stack.

    Raises ValueError for wrong settings, and CalledProcessError or FileNotFoundError if no cloud answers.
    """
    if cloud := load_file(PROJECT / f"Pulumi.{stack}.yaml").cloud.provisioned:
        mine = ownership(cloud)
        if folder is not None:
            return verify(stack, cloud, "simulated", simulated(folder), mine)
        return verify(stack, cloud, cloud.command, cloud.lister(mine, run_json), mine)
    now = datetime.now(tz=UTC).isoformat(timespec="seconds")
    left = lifecycle.find_leftovers(stack_cluster(str(PROJECT), stack))
    return Receipt(stack=stack, source="this machine", at=now, left=tuple(left))


def main(arguments: list[str]) -> int:
    """Write the receipt. Return 0 if nothing is left, 1 if something is, 2 if the cloud could not be queried."""
    parser = argparse.ArgumentParser(prog=command_title("verify-empty"), description=__doc__)
    parser.add_argument("--stack", default=os.environ.get("STACK", "local"), help="the stack; by default $STACK")
    parser.add_argument("--simulated", type=Path, help="folder of a rehearsal's clouds")
    parser.add_argument("--output", type=Path, help="the receipt; by default .trainyard/receipts/STACK.json")
    options = parser.parse_args(arguments)
    try:
        receipt = receipt_of(options.stack, options.simulated)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except FileNotFoundError as error:
        print(f"verify-empty: {error.filename} is not installed, so the cloud cannot be queried", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"verify-empty: `{' '.join(error.cmd)}` failed: {error.stderr.strip()}", file=sys.stderr)
        return 2
    file = options.output or STATE / "receipts" / f"{options.stack}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(receipt.to_json(), encoding="utf-8")
    print(receipt.to_json())
    return 0 if receipt.empty else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
