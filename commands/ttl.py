"""Stacks that are past their `ttl_hours`, as JSON, for the scheduled destroy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from commands.environment import PROJECT
from commands.stack import PulumiFailed, pulumi
from stack.config import load_file


def first_up(history: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the start of the first `up` since the last successful `destroy`; None if nothing is up.

    `history` comes from `pulumi stack history --json`, newest first. A failed `up` counts too.
    """
    begun = None
    for each in history:
        if each["kind"] == "destroy" and each["result"] == "succeeded":
            break
        if each["kind"] == "update":
            begun = datetime.fromisoformat(each["startTime"]).astimezone(UTC)
    return begun


def is_expired(begun: datetime | None, ttl_hours: float | None, now: datetime) -> bool:
    """Return True if a stack that is up since `begun` has outlived its ttl. A stack without a ttl never expires."""
    return begun is not None and ttl_hours is not None and now - begun > timedelta(hours=ttl_hours)


def main() -> int:
    """Print the names of the expired stacks. Report a stack whose settings cannot be read, and check the others."""
    expired, now = [], datetime.now(tz=UTC)
    for file in sorted(PROJECT.glob("Pulumi.*.yaml")):
        stack = file.name.split(".")[1]
        try:
            ttl = load_file(file).ttl_hours
        except ValueError as error:
            print(f"{stack}: its ttl_hours is unknown, because its settings are invalid: {error}", file=sys.stderr)
            continue
        if ttl is None:
            continue
        try:
            history = json.loads(pulumi("stack", "history", "--json", "--stack", stack, quiet=True))
        except PulumiFailed as error:
            # A stack that the backend does not have was never up.
            print(f"{stack}: {error}", file=sys.stderr)
            continue
        if is_expired(first_up(history), ttl, now):
            expired.append(stack)
    print(json.dumps(expired))
    return 0


if __name__ == "__main__":
    sys.exit(main())
