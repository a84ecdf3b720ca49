"""Rules for resources, and the check of a stack's resources. Each rule has a reason and a source.

`make preview` checks recorded resources (`findings`). The policy pack checks the same rules in Pulumi's engine
(policy/pack).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from settings.problem import Problem, path_of

Level = Literal["mandatory", "advisory", "disabled"]
Inputs = Mapping[str, Any]
InvalidInput = tuple[str, str]
"""Path of an input, such as `nodeConfig.taints[0]` or empty, and the error in its value."""
Check = Callable[[Inputs], InvalidInput | None]
"""Function that returns the input that breaks a rule, or None."""


class Resource(Protocol):
    """Resource that the Pulumi program registers."""

    @property
    def type(self) -> str:
        """Type token."""

    @property
    def name(self) -> str:
        """Name in the program."""

    @property
    def inputs(self) -> dict[str, Any]:
        """Inputs, in the SDK's camelCase."""


@dataclass(frozen=True)
class Rule:
    """Rule of the policy."""

    name: str
    """Name of the rule in findings, settings and exceptions."""
    types: tuple[str, ...]
    """Suffixes of the resource types that the rule applies to."""
    check: Check
    why: str
    """Reason for the rule, in a sentence or two."""
    link: str
    level: Level = "mandatory"
    """Default level. A mandatory finding fails the preview."""

    def applies(self, kind: str) -> bool:
        """Return True if the rule applies to resources of type `kind`."""
        return kind.endswith(self.types)

    def problem(self, resource: str, inputs: Inputs) -> Problem | None:
        """Return the problem of a resource's inputs, or None if they follow the rule."""
        if (invalid := self.check(inputs)) is None:
            return None
        path, message = invalid
        return Problem(f"policy.{self.name.replace('-', '_')}", path_of(path), message, namespace=resource)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Violation of a rule by a resource."""

    rule: Rule
    resource: str
    """Name of the resource in the program."""
    problem: Problem
    """Code of the rule, path of the input, and the error."""
    level: Level
    """Level of the rule in this stack."""
    excused: str | None
    """Reason of the stack's exception, or None. A finding with an exception does not fail the preview."""

    @property
    def fails(self) -> bool:
        """True if the finding fails a preview."""
        return self.level == "mandatory" and self.excused is None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the rules in a stack."""

    levels: Mapping[str, Level] = field(default_factory=dict)
    """Levels of rules, instead of their defaults."""
    exceptions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Rule and resource -> reason of the exception."""


def findings(resources: Iterable[Resource], rules: Iterable[Rule], settings: Settings) -> list[Finding]:
    """Return the findings, those that fail a preview first. Raises ValueError for an unknown rule in the settings."""
    all_rules = tuple(rules)
    names = {rule.name for rule in all_rules}
    names_in_settings = {*settings.levels, *(rule for rule, _ in settings.exceptions)}
    if unknown := sorted(names_in_settings - names):
        raise ValueError(f"{unknown[0]} is not a rule; write one of {', '.join(sorted(names))}")
    violations = [
        Finding(
            rule=rule,
            resource=resource.name,
            problem=problem,
            level=settings.levels.get(rule.name, rule.level),
            excused=settings.exceptions.get((rule.name, resource.name)),
        )
        for resource in resources
        for rule in all_rules
        if rule.applies(resource.type) and settings.levels.get(rule.name, rule.level) != "disabled"
        if (problem := rule.problem(resource.name, resource.inputs))
    ]
    return sorted(violations, key=lambda finding: (not finding.fails, finding.rule.name, finding.resource))


def value_at(inputs: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of keys joined by dots, or None if a key is missing."""
    value: Any = inputs
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def pods(inputs: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and value of every pod specification in the inputs, at any depth."""
    if isinstance(inputs, Mapping):
        if isinstance(inputs.get("containers"), list):
            yield path, inputs
        for key, value in inputs.items():
            yield from pods(value, f"{path}.{key}" if path else key)
    elif isinstance(inputs, list):
        for index, value in enumerate(inputs):
            yield from pods(value, f"{path}[{index}]")


def containers(inputs: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and value of every container of every pod in the inputs, including init containers."""
    for path, pod in pods(inputs):
        for key in ("containers", "initContainers"):
            for index, container in enumerate(pod.get(key) or []):
                yield f"{path}.{key}[{index}]", container


def statements(policy: Any) -> list[Mapping[str, Any]]:
    """Return the statements of an IAM policy, which is JSON text or a mapping."""
    document = json.loads(policy) if isinstance(policy, str) else policy or {}
    return as_list(document.get("Statement", []))


def as_list(one_or_many: Any) -> list[Any]:
    """Return one value or a list of values as a list."""
    return list(one_or_many) if isinstance(one_or_many, list) else [one_or_many]
