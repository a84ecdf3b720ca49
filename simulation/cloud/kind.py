"""Kind: description of a resource type in a simulated cloud: id, outputs, rules, references and durations."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any

from settings.problem import Problem, path_of
from simulation.cloud.state import CloudState, Properties

Errors = Iterator[tuple[str, str]]
"""Pairs of a property and the error in its value."""


def problem(code: str, where: str, why: str, source: str) -> Problem:
    """Return the problem of an input that the cloud would reject. The message names the rule and its documentation."""
    rule = code.rpartition(".")[2].replace("_", "-")
    return Problem(code, path_of(where), f"{why} [rule {rule}, {source}]")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A check of a resource's inputs against the resources that already exist. Create and update apply it."""

    source: str
    """Address of the rule's documentation."""
    check: Callable[[Properties, CloudState], Errors]

    @property
    def code(self) -> str:
        """Code of the rule's problems, from its cloud and its function: `rehearsal.gcp.member_exists`."""
        return f"rehearsal.{self.check.__module__.split('.')[-1]}.{self.check.__name__}"

    def problems(self, inputs: Properties, state: CloudState) -> list[Problem]:
        """Return the inputs that break this rule."""
        return [problem(self.code, where, why, self.source) for where, why in self.check(inputs, state)]


def rule(source: str) -> Callable[[Callable[[Properties, CloudState], Errors]], Rule]:
    """Make a rule from a function of the inputs and the cloud's state."""

    def decorate(check: Callable[[Properties, CloudState], Errors]) -> Rule:
        return Rule(source=source, check=check)

    return decorate


def value_at(inputs: Any, path: str) -> Any:
    """Return the value at a dotted path, or None. Lists on the way stand for their first element."""
    for key in path.split("."):
        if isinstance(inputs, list):
            inputs = inputs[0] if inputs else None
        if not isinstance(inputs, dict):
            return None
        inputs = inputs.get(key)
    return inputs


def values_at(inputs: Any, path: str) -> list[Any]:
    """Return the values at a path, for all elements of lists on the way."""
    found = [inputs]
    for key in path.split("."):
        found = [each.get(key) for each in found if isinstance(each, dict)]
        found = [item for each in found for item in (each if isinstance(each, list) else [each])]
    return [each for each in found if each is not None]


def parse_network(text: Any) -> IPv4Network | None:
    """Return a network; None if the text is not a network or not known yet."""
    try:
        return IPv4Network(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


Template = str | Callable[[Properties], Any]
"""Text with `{property}` placeholders, or a function of the properties."""


@dataclass(frozen=True, kw_only=True)
class Autoname:
    """Automatic name of a resource that the program does not name."""

    property: str = "name"
    limit: int = 63
    """Maximum length of the whole name."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An input that refers to another resource.

    The other resource must be created before this one and deleted after it.
    """

    path: str
    """Dotted path. Lists on the way stand for all their elements."""
    types: tuple[str, ...]
    required: bool = True
    """True if a missing resource is an error; False if the resource may exist outside of the simulated cloud."""
    owner: bool = False
    """True if the deletion of the other resource deletes this one too."""
    prefix: str = ""
    """Prefix before the reference. A value without it does not refer to a resource of this cloud."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of resource."""

    type: str
    """Type token."""
    id: Template
    """Id, from the inputs and `{number}`, a unique hexadecimal number."""
    outputs: Mapping[str, Template] = field(default_factory=dict)
    """Computed outputs, from the inputs, `{id}` and `{number}`."""
    autoname: Autoname | None = None
    references: tuple[Reference, ...] = ()
    rules: tuple[Rule, ...] = ()
    adopts_existing: bool = False
    """True if the creation of an existing resource adopts it instead of failing."""
    api: str = ""
    """API that the project must enable first."""
    seconds: int = 3
    """Seconds that creation takes in the real cloud."""
    delete_seconds: int = 3
    """Seconds that deletion takes in the real cloud."""
    quota: Callable[[Properties], Mapping[str, int]] | None = None
    """Usage of quotas, by region and name."""


def rendered(template: Template, properties: Properties) -> Any:
    """Return the value of a template."""
    if callable(template):
        return template(properties)
    return template.format_map(defaultdict(str, properties))


def hex_digits(seed: str) -> str:
    """Return 17 hexadecimal digits that depend only on the seed."""
    return hashlib.sha256(seed.encode()).hexdigest()[:17]


def references_of(inputs: Properties, reference: Reference) -> list[str]:
    """Return the known values at a reference's path that have its prefix, without the prefix."""
    found = [each for each in values_at(inputs, reference.path) if isinstance(each, str)]
    return [each.removeprefix(reference.prefix) for each in found if each.startswith(reference.prefix)]
