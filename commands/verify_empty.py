"""`make verify-empty`: what a destroyed stack has left, by the cloud's own listing: a receipt, and 1 if anything is.

With --simulated it asks the simulated clouds of a rehearsal. The real `gcloud` and `aws` take every listing's words,
and `aws` told two stacks apart on a server that plays AWS (moto); no account was ever asked so far.
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
from commands.remains.listers import Lister, real, simulated
from commands.remains.listings import AMAZON, GOOGLE
from commands.remains.ours import Ours, ours
from infra.aws.config import EksConfig
from infra.gcp.config import GkeConfig
from infra.local import lifecycle
from infra.local.settings import stack_cluster
from stack_config import load_file

NETWORKS = ("network", "VPC")
"""Kinds of which the stack has its own, so that all that is in one is the stack's."""


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


def verify(stack: str, platform: GkeConfig | EksConfig, source: str, lister: Lister, mine: Ours) -> Receipt:
    """Look at every kind of thing that the platform's cloud has, for what is of `mine`."""
    listings = GOOGLE if isinstance(platform, GkeConfig) else AMAZON
    looked_at: dict[str, int] = {}
    left: list[str] = []
    kept: list[str] = []
    networks: set[str] = set()
    for listing in listings:
        found = list(lister(listing))
        looked_at[listing.kind] = len(found)
        for each in found:
            if mine.has(each, networks):
                if each.kind in NETWORKS:
                    networks.add(each.id)
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


def receipt_of(stack: str, folder: Path | None) -> Receipt:
    """The receipt of a stack. Raises ValueError, and CalledProcessError or FileNotFoundError where no cloud answers."""
    platform = load_file(PROJECT / f"Pulumi.{stack}.yaml").platform
    if isinstance(platform, GkeConfig | EksConfig):
        mine = ours(platform)
        if folder is not None:
            return verify(stack, platform, "simulated", simulated(folder), mine)
        source = "gcloud" if isinstance(platform, GkeConfig) else "aws"
        return verify(stack, platform, source, real(platform, mine), mine)
    now = datetime.now(tz=UTC).isoformat(timespec="seconds")
    left = lifecycle.leftovers(stack_cluster(str(PROJECT), stack))
    return Receipt(stack=stack, source="this machine", at=now, left=tuple(left))


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
