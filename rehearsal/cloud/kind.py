"""Kind: what the simulated cloud knows of one type of resource: its id, outputs, rules, users and duration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rehearsal.cloud.findings import Rule
from rehearsal.cloud.state import Properties

Template = str | Callable[[Properties], Any]
"""Text with `{property}` holes, or a function of the properties."""


@dataclass(frozen=True, kw_only=True)
class Autoname:
    """How the provider names a resource that the program leaves unnamed."""

    property: str = "name"
    limit: int = 63
    """Most characters of the whole name."""
    prefix: str = ""
    """What comes before the resource's own name."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An input that names another resource, which must exist first and cannot go before this one."""

    path: str
    """Dotted path; through lists it means every element."""
    types: tuple[str, ...]
    required: bool = True
    """Whether what is not in the simulated cloud is refused; False where it may belong to the cloud itself."""
    owner: bool = False
    """Whether the other resource, when it goes, takes this one with it."""
    prefix: str = ""
    """What the value must begin with: any other refers to nothing in this cloud."""
    strips_prefix: bool = False
    """Whether that is no part of the reference."""

    def plain(self, value: str) -> str:
        """The reference alone."""
        return value.removeprefix(self.prefix) if self.strips_prefix else value


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One type of resource."""

    type: str
    """Type token."""
    id: Template
    """Id, from the inputs and `{number}`, a hexadecimal number of its own."""
    outputs: Mapping[str, Template] = field(default_factory=dict)
    """What the cloud computes, from the inputs, `{id}` and `{number}`."""
    autoname: Autoname | None = None
    replaces: frozenset[str] = frozenset()
    """Inputs whose change makes another resource."""
    references: tuple[Reference, ...] = ()
    rules: tuple[Rule, ...] = ()
    takes_over: bool = False
    """Whether a creation of what is there already is none, but takes it over."""
    api: str = ""
    """API that must be enabled in the project first."""
    seconds: int = 3
    """How long creation takes in the real cloud."""
    delete_seconds: int = 3
    """How long deletion takes."""
    quota: Callable[[Properties], Mapping[str, int]] | None = None
    """Quotas that it counts against, by region and name."""


def filled(template: Template, properties: Properties) -> Any:
    """The value of a template."""
    if callable(template):
        return template(properties)
    return template.format_map(_Holes(properties))


class _Holes(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


def number(seed: str) -> str:
    """Seventeen hexadecimal digits, the same for the same seed."""
    return hashlib.sha256(seed.encode()).hexdigest()[:17]


def references_of(inputs: Properties, reference: Reference) -> list[str]:
    """The values at a reference's path that are there and known."""
    found: list[Any] = [inputs]
    for key in reference.path.split("."):
        found = [each.get(key) for each in found if isinstance(each, dict)]
        found = [item for each in found for item in (each if isinstance(each, list) else [each])]
    return [each for each in found if isinstance(each, str) and each.startswith(reference.prefix)]
