"""Rule: one thing that a stack must or should not do, as a predicate over a resource, with its reason and its source.

The same rules run over a recorded graph (`findings`) and as a policy pack under the engine (policy/pack).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Level = Literal["mandatory", "advisory", "disabled"]
Inputs = Mapping[str, Any]
Check = Callable[[Inputs], str | None]
"""What is wrong with a resource's inputs; None where nothing is."""


class Resource(Protocol):
    """A resource as recorded under mocks or as the engine shows it."""

    @property
    def type(self) -> str:
        """Its type token."""

    @property
    def name(self) -> str:
        """Its name in the program."""

    @property
    def inputs(self) -> dict[str, Any]:
        """Its inputs, in the SDK's camelCase."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule."""

    name: str
    """Name that findings, settings and exceptions use."""
    level: Level
    """What a finding does unless the stack says otherwise: a mandatory one fails the preview."""
    why: str
    """A sentence of why."""
    link: str
    """Where that is documented."""
    types: tuple[str, ...]
    """Types of the resources that it looks at, as they end."""
    check: Check
    """What is wrong with the inputs of one."""

    def applies(self, kind: str) -> bool:
        """Whether the rule looks at resources of that type."""
        return kind.endswith(self.types)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One resource that breaks one rule."""

    rule: Rule
    resource: str
    """Its name in the program."""
    message: str
    """What is wrong."""
    level: Level
    """What it does, by the stack's settings."""
    excused: str | None
    """The reason that the stack gives for it; it then fails nothing."""

    @property
    def fails(self) -> bool:
        """Whether a preview fails for it."""
        return self.level == "mandatory" and self.excused is None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a stack says about the rules."""

    levels: Mapping[str, Level] = field(default_factory=dict)
    """Rule -> its level in this stack."""
    exceptions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Rule and resource -> why the resource may break it."""


def findings(resources: Iterable[Resource], rules: Iterable[Rule], settings: Settings) -> list[Finding]:
    """Everything that breaks a rule, mandatory findings first. Raises ValueError for a rule that does not exist."""
    known = tuple(rules)
    names = {rule.name for rule in known}
    named = {*settings.levels, *(rule for rule, _ in settings.exceptions)}
    if unknown := sorted(named - names):
        raise ValueError(f"{unknown[0]} is no rule; write one of {', '.join(sorted(names))}")
    found = [
        Finding(
            rule=rule,
            resource=resource.name,
            message=message,
            level=settings.levels.get(rule.name, rule.level),
            excused=settings.exceptions.get((rule.name, resource.name)),
        )
        for resource in resources
        for rule in known
        if rule.applies(resource.type) and settings.levels.get(rule.name, rule.level) != "disabled"
        if (message := rule.check(resource.inputs))
    ]
    return sorted(found, key=lambda each: (not each.fails, each.rule.name, each.resource))
