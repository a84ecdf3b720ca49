"""Rules of the clouds: functions with a link to the documentation of the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from simulation.cloud.state import CloudState, Properties

Found = Iterator[tuple[str, str]]
"""Pairs of a property and the error in its value."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An input that the cloud would reject."""

    property: str
    """Path of the input, in the provider's names."""
    reason: str
    rule: str
    """Name of the rule."""
    source: str
    """Address of the rule's documentation."""

    def __str__(self) -> str:
        return f"{self.reason} [rule {self.rule}, {self.source}]"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A check of a resource's inputs, optionally against the resources that already exist."""

    name: str
    source: str
    check: Callable[..., Found]
    looks_at_cloud: bool

    def findings(self, inputs: Properties, state: CloudState | None = None) -> list[Finding]:
        """Return the inputs that break this rule."""
        found = self.check(inputs, state) if self.looks_at_cloud else self.check(inputs)
        return [Finding(property=where, reason=why, rule=self.name, source=self.source) for where, why in found]


def rule(source: str) -> Callable[[Callable[[Properties], Found]], Rule]:
    """Make a rule from a function of the inputs. The function does not see unknown values."""

    def decorate(check: Callable[[Properties], Found]) -> Rule:
        return Rule(name=_name(check), source=source, check=check, looks_at_cloud=False)

    return decorate


def admission(source: str) -> Callable[[Callable[[Properties, CloudState], Found]], Rule]:
    """Make a rule from a function of the inputs and the state. Create and update apply it."""

    def decorate(check: Callable[[Properties, CloudState], Found]) -> Rule:
        return Rule(name=_name(check), source=source, check=check, looks_at_cloud=True)

    return decorate


def _name(check: Callable[..., Found]) -> str:
    return check.__name__.replace("_", "-")


def at(inputs: Any, path: str) -> Any:
    """Return the value at a dotted path, or None. Lists on the way stand for their first element."""
    for key in path.split("."):
        if isinstance(inputs, list):
            inputs = inputs[0] if inputs else None
        if not isinstance(inputs, dict):
            return None
        inputs = inputs.get(key)
    return inputs
