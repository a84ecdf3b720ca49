"""PolicyConfig: what a stack's YAML says about the rules and about what may be replaced. No Pulumi."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.settings.types import Section
from policy.catalogue import RULES

_NAMES = tuple(rule.name for rule in RULES)


def _rule(value: str) -> str:
    if value not in _NAMES:
        raise ValueError(f"is no rule; write one of {', '.join(_NAMES)}")
    return value


RuleName = Annotated[str, AfterValidator(_rule)]
"""The name of a rule."""


class ExceptionConfig(Section):
    """One resource that may break one rule."""

    rule: RuleName = Field(examples=["images-by-digest"])
    """The rule."""
    resource: Annotated[str, Field(min_length=1)] = Field(examples=["digits-job"])
    """Name of the resource in the program, as the finding says it."""
    reason: Annotated[str, Field(min_length=10)] = Field(examples=["the image of the walk-through has only a tag"])
    """Why it may; the preview shows it."""


class PolicyConfig(Section):
    """What holds for this stack of the rules in docs/policy.md."""

    levels: dict[RuleName, Literal["mandatory", "advisory", "disabled"]] = Field(default_factory=dict)
    """Rules whose level is another one here."""
    exceptions: tuple[ExceptionConfig, ...] = ()
    """Resources that may break a rule, each with the reason."""
    may_replace: tuple[str, ...] = ()
    """Pools with a running job and buckets with checkpoints that a plan may replace or delete, by the names that the
    preview says; take them out again afterwards."""
