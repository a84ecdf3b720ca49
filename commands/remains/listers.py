"""Inventory clients: list every resource of a kind in a cloud, whoever created it.

One is simulated, the others real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from commands.remains.listings import Found, Listing, labels_of, read
from commands.remains.ours import Ours
from commands.review.quota_left import asked
from infra.aws.config import EksConfig
from infra.gcp.config import GkeConfig
from rehearsal.cloud.state import Record, read_state

Lister = Callable[[Listing], Iterable[Found]]
"""Function that lists every resource of a kind."""
Ask = Callable[..., Any]
"""Function that runs a command and returns its JSON."""


def simulated(folder: Path) -> Lister:
    """Return a client for the simulated clouds whose state is in a folder."""

    def rows(listing: Listing) -> Iterator[Found]:
        for record in read_state(folder).of_type(*listing.types):
            inputs = record.inputs
            labels = {key: inputs.get(key) or {} for key in ("tags", "labels", "resourceLabels")}
            yield Found(
                kind=listing.kind,
                name=_name(record),
                labels={name: str(value) for each in labels.values() for name, value in each.items()},
                id=record.id,
                facts={key: value for key, value in inputs.items() if isinstance(value, str)},
            )

    return rows


def _name(record: Record) -> str:
    """Return the name that the cloud's listing would show."""
    for key in ("email", "member", "name", "bucket", "repositoryId"):
        if isinstance(record.outputs.get(key), str):
            return str(record.outputs[key])
    return record.id


def real(platform: GkeConfig | EksConfig, ours: Ours, ask: Ask = asked) -> Lister:
    """Return a client for the real cloud, which uses the user's `gcloud` or `aws` and its credentials.

    Raises CalledProcessError, and FileNotFoundError if that command is not installed.
    """
    if isinstance(platform, EksConfig):
        return lambda listing: _amazon(listing, platform, ours, ask)
    return lambda listing: _google(listing, platform, ask)


def _amazon(listing: Listing, platform: EksConfig, ours: Ours, ask: Ask) -> Iterator[Found]:
    place = (f"--region={platform.region}", "--output=json")
    words = [word.format(region=platform.region, name=platform.name, label=ours.label) for word in listing.words]
    for found in read(listing, ask(*words, *place)):
        if ours.asks_tags(listing, found):
            answer = ask(*(word.format(id=found.id) for word in listing.tags), *place)
            yield replace(found, labels=labels_of(answer["Tags"]))
        elif listing.kind != "key":
            yield found
        elif not _leaves(found, place, ask):
            yield replace(found, id=found.name.rpartition("/")[2])


def _leaves(key: Found, place: tuple[str, ...], ask: Ask) -> bool:
    """Return True if a key is already deleted. It stays restorable for a week and costs nothing."""
    answer = ask("aws", "kms", "describe-key", f"--key-id={key.name}", *place)
    return bool(answer["KeyMetadata"]["KeyState"] == "PendingDeletion")


def _google(listing: Listing, platform: GkeConfig, ask: Ask) -> Iterator[Found]:
    if listing.kind != "binding":
        yield from read(listing, ask(*listing.words, f"--project={platform.project}", "--format=json"))
        return
    answer = ask(*listing.words, platform.project, "--format=json")
    members = {member for binding in answer.get("bindings", []) for member in binding["members"]}
    yield from (Found(kind=listing.kind, name=member, labels={}) for member in sorted(members))
