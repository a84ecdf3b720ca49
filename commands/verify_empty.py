"""`make verify-empty`: a receipt of a destroyed stack's leftovers in the cloud's own listing. Exits with 1 if there are
any.

--simulated queries the simulated clouds of a rehearsal. The real `gcloud` and `aws` accept every listing's words. `aws`
distinguished two stacks on moto, a server that simulates AWS. Not yet tested on a cloud account.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from commands.environment import PROJECT, STATE
from commands.inventory.ownership import ownership
from commands.inventory.simulated import simulated
from infra.cloud import ProvisionedCloud
from infra.inventory import Lister, Ownership, run_json
from infra.local import lifecycle
from infra.local.settings import stack_cluster
from stack.config import load_file

NETWORKS = ("network", "VPC")
"""Kinds of which the stack has its own. Every resource in one belongs to the stack."""


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
    """Return the receipt of a stack. Raises ValueError, and CalledProcessError or FileNotFoundError if no cloud
    answers.
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
    parser = argparse.ArgumentParser(prog="make verify-empty", description=__doc__)
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
        print(f"verify-empty: {error.filename} is not installed, so the cloud cannot be asked", file=sys.stderr)
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
