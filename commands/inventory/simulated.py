"""Inventory client of the simulated clouds: list all resources of a kind, including those of other stacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.inventory import CloudResource, Lister, Listing
from simulation.cloud.state import Record, read_state


def simulated(folder: Path) -> Lister:
    """Return a client for the simulated clouds whose state is in a folder."""

    def rows(listing: Listing) -> Iterator[CloudResource]:
        for record in read_state(folder).of_type(*listing.types):
            inputs = record.inputs
            labels = {key: inputs.get(key) or {} for key in ("tags", "labels", "resourceLabels")}
            yield CloudResource(
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
