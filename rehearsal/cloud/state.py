"""What a simulated cloud holds: one JSON file, changed under a lock, so that it outlives the providers that use it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Properties = dict[str, Any]


@dataclass(kw_only=True)
class Record:
    """One resource that exists in the cloud."""

    id: str
    """The cloud's id of it."""
    type: str
    """Type token, such as `gcp:compute/network:Network`."""
    urn: str
    """The Pulumi resource that it was created for."""
    inputs: Properties
    outputs: Properties
    refers_to: list[str] = field(default_factory=list)
    """Keys of the resources that this one uses; those cannot go before it."""
    invisible_reads: int = 0
    """How many more times the cloud denies that it exists: eventual consistency."""

    @property
    def key(self) -> str:
        """Type and id: what a bucket and its policy share is the id alone."""
        return key(self.type, self.id)


def key(type_: str, id_: str) -> str:
    """Where a resource is in the cloud's books."""
    return f"{type_} {id_}"


@dataclass(kw_only=True)
class Operation:
    """One thing that the cloud did."""

    verb: str
    """create, update or delete."""
    type: str
    urn: str
    id: str
    seconds: int
    """How long the real cloud takes."""


@dataclass(kw_only=True)
class CloudState:
    """Everything in the simulated clouds of one rehearsal."""

    resources: dict[str, Record] = field(default_factory=dict)
    """By their keys."""
    operations: list[Operation] = field(default_factory=list)
    fault: str = ""
    """The fault that is still to happen; empty once it has."""
    calls: int = 0
    """Calls that change something, counted for faults."""
    counter: int = 0
    """Source of numbers that must differ."""
    settings: Properties = field(default_factory=dict)
    """What the rehearsal tells its clouds: address of the cluster, quotas."""

    def of_type(self, *types: str) -> list[Record]:
        """The resources of these types."""
        return [record for record in self.resources.values() if record.type in types]

    def find(self, reference: str, *types: str) -> Record | None:
        """The resource of one of the types that `reference` names by id, self link, ARN, e-mail or name."""
        wanted = reference.removeprefix("https://www.googleapis.com/compute/v1/")
        for record in self.of_type(*types):
            outputs = record.outputs
            names = {outputs.get(name) for name in ("selfLink", "arn", "email", "name", "bucket", "repositoryId")}
            if wanted == record.id or reference in names:
                return record
        return None

    def next_number(self) -> int:
        """A number that no other call got."""
        self.counter += 1
        return self.counter


def new_state(folder: Path, *, fault: str = "", settings: Mapping[str, Any] | None = None) -> None:
    """Begin with empty clouds."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, CloudState(fault=fault, settings=dict(settings or {})))


def read_state(folder: Path) -> CloudState:
    """The clouds as they are."""
    content = json.loads((folder / "cloud.json").read_text(encoding="utf-8"))
    content["resources"] = {name: Record(**value) for name, value in content["resources"].items()}
    content["operations"] = [Operation(**value) for value in content["operations"]]
    return CloudState(**content)


@contextmanager
def changing(folder: Path) -> Iterator[CloudState]:
    """The clouds, for one change that no other sees half of; nothing is kept of a change that raises."""
    with (folder / "cloud.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state(folder)
        yield state
        _write(folder, state)


def _write(folder: Path, state: CloudState) -> None:
    draft = folder / "cloud.json.new"
    draft.write_text(json.dumps(asdict(state)), encoding="utf-8")
    draft.rename(folder / "cloud.json")
