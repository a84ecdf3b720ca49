"""`make verify-empty`: what a destroyed stack has left, by the cloud's own listing: a receipt, and 1 if anything is.

With --simulated it asks the simulated clouds of a rehearsal. The real `gcloud` and `aws` take every listing's words; no
account was ever asked so far.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from commands.down import everything_left
from commands.environment import PROJECT, STATE
from commands.listings import AMAZON, GOOGLE, Found, Listing, read
from commands.quota_left import asked
from infra.aws.config import EksConfig
from infra.gcp.config import GkeConfig
from rehearsal.cloud.state import Record, read_state
from stack_config import load_file

Lister = Callable[[Listing], Iterable[Found]]
"""Gives everything of a kind that there is, whoever made it."""
TOMBSTONE = "deleted:"
"""What Google's bindings of accounts that are gone begin with: https://cloud.google.com/iam/docs/policies#handle-deleted-members"""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What was looked at, and what of it is the stack's."""

    stack: str
    source: str
    """Who was asked: `gcloud`, `aws`, `simulated` or `this machine`."""
    at: str
    """When."""
    looked_at: Mapping[str, int] = field(default_factory=dict)
    """Kind -> how many of it there are, the stack's or not."""
    left: tuple[str, ...] = ()
    """What should not be there."""
    kept: tuple[str, ...] = ()
    """Buckets that stay because the settings say so; they go on costing."""

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return not self.left

    def to_json(self) -> str:
        """As it is written."""
        return json.dumps({**asdict(self), "empty": self.empty}, indent=2)


def belongs(found: Found, cluster: str) -> bool:
    """Whether a cluster of that name made it: by its name, or by a label that names the cluster."""
    named = found.name.rpartition("/")[2].removeprefix(TOMBSTONE).removeprefix("serviceAccount:")
    parts = (named, found.name.removeprefix("/aws/eks/").removeprefix("alias/"))
    if any(part == cluster or part.startswith((f"{cluster}-", f"{cluster}/", f"gke-{cluster}-")) for part in parts):
        return True
    values = {str(value) for value in found.labels.values()}
    keys = {key.rpartition("/")[2] for key in found.labels}
    return cluster in values | keys or any(value.startswith(f"{cluster}-") for value in values)


def verify(stack: str, platform: GkeConfig | EksConfig, source: str, lister: Lister) -> Receipt:
    """Look at every kind of thing that the platform's cloud has."""
    listings = GOOGLE if isinstance(platform, GkeConfig) else AMAZON
    looked_at: dict[str, int] = {}
    left: list[str] = []
    kept: list[str] = []
    for listing in listings:
        found = list(lister(listing))
        looked_at[listing.kind] = len(found)
        for each in found:
            if belongs(each, platform.name):
                stays = each.kind == "bucket" and platform.bucket.keep
                (kept if stays else left).append(f"{each.kind} {each.name}")
    return Receipt(
        stack=stack,
        source=source,
        at=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        looked_at=looked_at,
        left=tuple(sorted(left)),
        kept=tuple(sorted(kept)),
    )


def simulated(folder: Path) -> Lister:
    """Lists the simulated clouds whose books are in a folder."""

    def rows(listing: Listing) -> Iterator[Found]:
        for record in read_state(folder).of_type(*listing.types):
            for name in _names(record):
                labels = {**(record.inputs.get("tags") or {}), **(record.inputs.get("labels") or {})}
                yield Found(kind=listing.kind, name=name, labels=labels)

    return rows


def _names(record: Record) -> Iterator[str]:
    """What the cloud's listing would call it."""
    for key in ("email", "member", "clusterName", "name", "bucket", "repositoryId"):
        if isinstance(record.outputs.get(key), str):
            yield str(record.outputs[key])
            return
    yield record.id


def real(platform: GkeConfig | EksConfig) -> Lister:
    """Lists the cloud itself, with the `gcloud` or `aws` that people use and its credentials."""

    def rows(listing: Listing) -> Iterator[Found]:
        if isinstance(platform, EksConfig):
            yield from read(listing, asked(*listing.words, f"--region={platform.region}", "--output=json"))
        elif listing.kind == "binding":
            answer = asked(*listing.words, platform.project, "--format=json")
            members = {member for binding in answer.get("bindings", []) for member in binding["members"]}
            yield from (Found(kind=listing.kind, name=member, labels={}) for member in sorted(members))
        else:
            yield from read(listing, asked(*listing.words, f"--project={platform.project}", "--format=json"))

    return rows


def receipt_of(stack: str, folder: Path | None) -> Receipt:
    """The receipt of a stack. Raises ValueError, and CalledProcessError or FileNotFoundError where no cloud answers."""
    platform = load_file(PROJECT / f"Pulumi.{stack}.yaml").platform
    if isinstance(platform, GkeConfig | EksConfig):
        if folder is not None:
            return verify(stack, platform, "simulated", simulated(folder))
        return verify(stack, platform, "gcloud" if isinstance(platform, GkeConfig) else "aws", real(platform))
    now = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return Receipt(stack=stack, source="this machine", at=now, left=tuple(everything_left()))


def main(arguments: list[str]) -> int:
    """Write the receipt: 0 when nothing is left, 1 when something is, 2 when nobody could be asked."""
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
