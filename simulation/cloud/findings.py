"""Rules of the clouds: functions with a link to the documentation of the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from settings.problem import Problem, path_of
from simulation.cloud.state import CloudState, Properties

Found = Iterator[tuple[str, str]]
"""Pairs of a property and the error in its value."""


def finding(code: str, where: str, why: str, source: str) -> Problem:
    """Return the problem of an input that the cloud would reject. The message names the rule and its documentation."""
    rule = code.rpartition(".")[2].replace("_", "-")
    return Problem(code, path_of(where), f"{why} [rule {rule}, {source}]")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A check of a resource's inputs, optionally against the resources that already exist."""

    source: str
    """Address of the rule's documentation."""
    check: Callable[..., Found]
    looks_at_cloud: bool

    @property
    def code(self) -> str:
        """Code of the rule's problems, from its cloud and its function: `rehearsal.gcp.tpu_topology`."""
        return f"rehearsal.{self.check.__module__.split('.')[-2]}.{self.check.__name__}"

    def findings(self, inputs: Properties, state: CloudState | None = None) -> list[Problem]:
        """Return the inputs that break this rule."""
        found = self.check(inputs, state) if self.looks_at_cloud else self.check(inputs)
        return [finding(self.code, where, why, self.source) for where, why in found]


def rule(source: str) -> Callable[[Callable[[Properties], Found]], Rule]:
    """Make a rule from a function of the inputs. The function does not see unknown values."""

    def decorate(check: Callable[[Properties], Found]) -> Rule:
        return Rule(source=source, check=check, looks_at_cloud=False)

    return decorate


def admission(source: str) -> Callable[[Callable[[Properties, CloudState], Found]], Rule]:
    """Make a rule from a function of the inputs and the state. Create and update apply it."""

    def decorate(check: Callable[[Properties, CloudState], Found]) -> Rule:
        return Rule(source=source, check=check, looks_at_cloud=True)

    return decorate


def at(inputs: Any, path: str) -> Any:
    """Return the value at a dotted path, or None. Lists on the way stand for their first element."""
    for key in path.split("."):
        if isinstance(inputs, list):
            inputs = inputs[0] if inputs else None
        if not isinstance(inputs, dict):
            return None
        inputs = inputs.get(key)
    return inputs
