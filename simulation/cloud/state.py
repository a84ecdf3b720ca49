"""State of the simulated clouds: a JSON file that changes under a lock and outlives the provider processes."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Properties = dict[str, Any]


def without_internal(properties: Properties) -> Properties:
    """Return the properties except internal ones, whose names begin with two underscores."""
    return {key: value for key, value in properties.items() if not key.startswith("__")}


@dataclass(kw_only=True)
class Record:
    """A resource that exists in the cloud."""

    id: str
    """The cloud's id of the resource."""
    type: str
    """Type token, such as `gcp:compute/network:Network`."""
    urn: str
    """URN of the Pulumi resource that created it."""
    inputs: Properties
    outputs: Properties
    refers_to: list[str] = field(default_factory=list)
    """Keys of the resources that this one uses. The cloud rejects their deletion while this one exists."""
    invisible_reads: int = 0
    """Number of further references that do not find the resource, to simulate eventual consistency."""

    @property
    def key(self) -> str:
        """Key of the resource in the state. A bucket and its policy have the same id but different types."""
        return key(self.type, self.id)


def key(type_: str, id_: str) -> str:
    """Return the key of a resource in the state."""
    return f"{type_} {id_}"


@dataclass(kw_only=True)
class Operation:
    """An operation that the cloud completed."""

    verb: str
    """create, update or delete."""
    type: str
    urn: str
    id: str
    seconds: int
    """Seconds that the real cloud takes."""


@dataclass(kw_only=True)
class CloudState:
    """State of all simulated clouds of a rehearsal."""

    resources: dict[str, Record] = field(default_factory=dict)
    """Resources by their keys."""
    operations: list[Operation] = field(default_factory=list)
    fault: str = ""
    """The fault that has not happened yet; empty otherwise."""
    calls: int = 0
    """Number of calls that change something; faults use it."""
    counter: int = 0
    """Source of unique numbers."""
    settings: Properties = field(default_factory=dict)
    """Settings from the rehearsal, such as the cluster's address and the quotas."""

    def of_type(self, *types: str) -> list[Record]:
        """Return the resources of these types."""
        return [record for record in self.resources.values() if record.type in types]

    def find(self, reference: str, *types: str) -> Record | None:
        """Return the resource of one of the types that `reference` names; None if there is none.

        The reference is an id, self link, ARN, e-mail address or name.
        """
        wanted = reference.removeprefix("https://www.googleapis.com/compute/v1/")
        for record in self.of_type(*types):
            outputs = record.outputs
            names = {outputs.get(name) for name in ("selfLink", "arn", "email", "name", "bucket", "repositoryId")}
            if wanted == record.id or reference in names:
                return record
        return None

    def next_number(self) -> int:
        """Return a number that no other call gets."""
        self.counter += 1
        return self.counter


def new_state(folder: Path, *, fault: str = "", settings: Mapping[str, Any] | None = None) -> None:
    """Write an empty state."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, CloudState(fault=fault, settings=dict(settings or {})))


def read_state(folder: Path) -> CloudState:
    """Read the state."""
    content = json.loads((folder / "cloud.json").read_text(encoding="utf-8"))
    content["resources"] = {name: Record(**value) for name, value in content["resources"].items()}
    content["operations"] = [Operation(**value) for value in content["operations"]]
    return CloudState(**content)


@contextmanager
def edit_state(folder: Path) -> Iterator[CloudState]:
    """Yield the state under a lock, and save it atomically at the end. An exception discards the change."""
    with (folder / "cloud.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state(folder)
        yield state
        _write(folder, state)


def _write(folder: Path, state: CloudState) -> None:
    draft = folder / "cloud.json.new"
    draft.write_text(json.dumps(asdict(state)), encoding="utf-8")
    draft.rename(folder / "cloud.json")
