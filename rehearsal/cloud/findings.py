"""Rules of the clouds: each a small function with the documentation that it comes from, named in what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rehearsal.cloud.state import CloudState, Properties

Found = Iterator[tuple[str, str]]
"""Pairs of property and what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One input that the cloud would refuse."""

    property: str
    """Where it is, in the provider's own names."""
    reason: str
    rule: str
    """Name of the rule."""
    source: str
    """Where the rule is documented."""

    def __str__(self) -> str:
        return f"{self.reason} [rule {self.rule}, {self.source}]"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What inputs must be by themselves, or, for one that looks at the cloud, beside what already exists."""

    name: str
    source: str
    check: Callable[..., Found]
    looks_at_cloud: bool

    def findings(self, inputs: Properties, state: CloudState | None = None) -> list[Finding]:
        """What breaks this rule."""
        found = self.check(inputs, state) if self.looks_at_cloud else self.check(inputs)
        return [Finding(property=where, reason=why, rule=self.name, source=self.source) for where, why in found]


def rule(source: str) -> Callable[[Callable[[Properties], Found]], Rule]:
    """Make a rule of a function over inputs; it sees unknown values as missing ones."""

    def decorate(check: Callable[[Properties], Found]) -> Rule:
        return Rule(name=_name(check), source=source, check=check, looks_at_cloud=False)

    return decorate


def admission(source: str) -> Callable[[Callable[[Properties, CloudState], Found]], Rule]:
    """Make a rule of a function over inputs and the cloud; it is asked when the resource is created."""

    def decorate(check: Callable[[Properties, CloudState], Found]) -> Rule:
        return Rule(name=_name(check), source=source, check=check, looks_at_cloud=True)

    return decorate


def _name(check: Callable[..., Found]) -> str:
    return check.__name__.replace("_", "-")


def at(inputs: Any, path: str) -> Any:
    """The value at a dotted path, the first element of lists on the way; None where there is none."""
    for key in path.split("."):
        if isinstance(inputs, list):
            inputs = inputs[0] if inputs else None
        if not isinstance(inputs, dict):
            return None
        inputs = inputs.get(key)
    return inputs
