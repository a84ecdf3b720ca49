"""Model of the simulated clouds in a rehearsal: their state, and the kinds of their resources.

The state is in a file, so that it outlives the processes of the providers.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from settings.problem import Problem, path_of

Properties = dict[str, Any]


def without_internal(properties: Properties) -> Properties:
    """Return the properties except internal ones, whose names begin with two underscores."""
    return {key: value for key, value in properties.items() if not key.startswith("__")}


@dataclass(kw_only=True)
class SimulatedResource:
    """Resource that exists in the cloud."""

    id: str
    type: str
    """Type token, such as `gcp:compute/network:Network`."""
    urn: str
    """URN of the resource in Pulumi's state."""
    inputs: Properties
    outputs: Properties
    refers_to: list[str] = field(default_factory=list)
    """Keys of the resources that this one uses. The cloud rejects their deletion while this one exists."""
    invisible_reads: int = 0
    """Number of lookups that do not find the resource yet, to simulate eventual consistency."""

    @property
    def key(self) -> str:
        """Key of the resource in the state. A bucket and its policy have the same id but different types."""
        return key(self.type, self.id)


def key(type_: str, id_: str) -> str:
    """Return the key of a resource in the state."""
    return f"{type_} {id_}"


@dataclass(kw_only=True)
class Operation:
    """Operation that the cloud completed."""

    verb: str
    """Kind of operation: create, update or delete."""
    type: str
    urn: str
    id: str
    seconds: int
    """Seconds that the real cloud takes."""


@dataclass(kw_only=True)
class CloudState:
    """State of all simulated clouds in a rehearsal."""

    resources: dict[str, SimulatedResource] = field(default_factory=dict)
    """Key -> resource."""
    operations: list[Operation] = field(default_factory=list)
    fault: str = ""
    """Fault to simulate; empty if there is none, or if the fault has happened."""
    calls: int = 0
    """Number of creations, updates and deletions so far. A fault can name the call in which it happens."""
    counter: int = 0
    """Last number from `next_number`."""
    settings: Properties = field(default_factory=dict)
    """Settings from the rehearsal, such as the cluster's address and the quotas."""

    def of_type(self, *types: str) -> list[SimulatedResource]:
        """Return the resources of these types."""
        return [record for record in self.resources.values() if record.type in types]

    def find(self, reference: str, *types: str) -> SimulatedResource | None:
        """Return the resource that `reference` names, if its type is one of `types`; None if there is none.

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
    """Write a state without resources."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, CloudState(fault=fault, settings=dict(settings or {})))


def read_state(folder: Path) -> CloudState:
    """Read the state."""
    content = json.loads((folder / "cloud.json").read_text(encoding="utf-8"))
    content["resources"] = {name: SimulatedResource(**value) for name, value in content["resources"].items()}
    content["operations"] = [Operation(**value) for value in content["operations"]]
    return CloudState(**content)


@contextmanager
def edit_state(folder: Path) -> Iterator[CloudState]:
    """Yield the state under a lock, and save it at the end. An exception discards the changes."""
    with (folder / "cloud.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state(folder)
        yield state
        _write(folder, state)


def _write(folder: Path, state: CloudState) -> None:
    draft = folder / "cloud.json.new"
    draft.write_text(json.dumps(asdict(state)), encoding="utf-8")
    draft.rename(folder / "cloud.json")


Errors = Iterator[tuple[str, str]]
"""Pairs: path of an input, and the error in its value."""


def problem(code: str, where: str, why: str, source: str) -> Problem:
    """Return the problem of an input that the cloud would reject. The message names the rule and its source."""
    rule = code.rpartition(".")[2].replace("_", "-")
    return Problem(code, path_of(where), f"{why} [rule {rule}, {source}]")


@dataclass(frozen=True)
class Rule:
    """Check of a resource's inputs against the existing resources. It runs at each creation and update."""

    source: str
    """URL of the rule's documentation."""
    check: Callable[[Properties, CloudState], Errors]

    @property
    def code(self) -> str:
        """Code of the rule's problems, from the module and name of `check`, such as `rehearsal.gcp.member_exists`."""
        return f"rehearsal.{self.check.__module__.split('.')[-1]}.{self.check.__name__}"

    def problems(self, inputs: Properties, state: CloudState) -> list[Problem]:
        """Return a problem for each input that breaks this rule."""
        return [problem(self.code, where, why, self.source) for where, why in self.check(inputs, state)]


def rule(source: str) -> Callable[[Callable[[Properties, CloudState], Errors]], Rule]:
    """Return a decorator that turns a function of the inputs and the cloud's state into a rule."""
    return partial(Rule, source)


def value_at(inputs: Any, path: str) -> Any:
    """Return the value at a dotted path, or None. Follow only the first element of lists."""
    for key in path.split("."):
        if isinstance(inputs, list):
            inputs = inputs[0] if inputs else None
        if not isinstance(inputs, dict):
            return None
        inputs = inputs.get(key)
    return inputs


def values_at(inputs: Any, path: str) -> list[Any]:
    """Return the values at a dotted path. Follow all elements of lists."""
    found = [inputs]
    for key in path.split("."):
        found = [each.get(key) for each in found if isinstance(each, dict)]
        found = [item for each in found for item in (each if isinstance(each, list) else [each])]
    return [each for each in found if each is not None]


def parse_network(text: Any) -> IPv4Network | None:
    """Parse a network in CIDR notation. Return None for other values, such as unknown values."""
    try:
        return IPv4Network(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


Template = str | Callable[[Properties], Any]
"""Text with `{property}` placeholders, or a function of the properties."""


@dataclass(frozen=True, kw_only=True)
class Autoname:
    """Automatic name of a resource if the program does not set one."""

    property: str = "name"
    """Input that has the name."""
    limit: int = 63
    """Maximum length of the whole name."""


@dataclass(frozen=True)
class Reference:
    """Input that refers to another resource.

    The other resource must exist before this one and outlive it.
    """

    path: str
    """Dotted path of the input. A path through a list refers to all its elements."""
    type: str
    """Type token of the other resource."""
    required: bool = field(default=True, kw_only=True)
    """True if a missing resource is an error; False if the resource may exist outside of the simulated cloud."""
    is_owner: bool = field(default=False, kw_only=True)
    """True if the deletion of the other resource also deletes this resource."""
    prefix: str = field(default="", kw_only=True)
    """Text before the reference. A value without it does not refer to a resource of this cloud."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Kind of resource, and the cloud's behavior for it."""

    type: str
    """Type token."""
    id: Template
    """Template of the id. Its properties are the inputs and `number`, a unique hexadecimal number."""
    outputs: Mapping[str, Template] = field(default_factory=dict)
    """Output that the cloud computes -> template of its value. Its properties are the inputs, `id` and `number`."""
    autoname: Autoname | None = None
    references: tuple[Reference, ...] = ()
    rules: tuple[Rule, ...] = ()
    adopts_existing: bool = False
    """True if the creation of an existing resource adopts it instead of failing."""
    failed_status: str = ""
    """Output `status` of a new resource for which capacity is lacking; empty if the cloud keeps no such resource."""
    api: str = ""
    """API that the project must enable first."""
    seconds: int = 3
    """Seconds that creation takes in the real cloud."""
    delete_seconds: int = 3
    """Seconds that deletion takes in the real cloud."""
    quota: Callable[[Properties], Mapping[str, int]] | None = None
    """Function of a resource's inputs. Returns quota, such as `us-east1/CPUS` -> amount that the resource needs."""


def rendered(template: Template, properties: Properties) -> Any:
    """Return the value of a template. A missing property counts as empty text."""
    if callable(template):
        return template(properties)
    return template.format_map(defaultdict(str, properties))


def hex_digits(seed: str) -> str:
    """Return 17 hexadecimal digits that depend only on the seed."""
    return hashlib.sha256(seed.encode()).hexdigest()[:17]


def references_of(inputs: Properties, reference: Reference) -> list[str]:
    """Return the values at a reference's path that have its prefix, without the prefix. Skip unknown values."""
    found = [each for each in values_at(inputs, reference.path) if isinstance(each, str)]
    return [each.removeprefix(reference.prefix) for each in found if each.startswith(reference.prefix)]
