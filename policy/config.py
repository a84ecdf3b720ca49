"""PolicyConfig: settings of the policy rules and of allowed replacements. No Pulumi."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from policy.catalogue import RULES
from policy.rules import Settings
from settings.problem import Invalid
from settings.types import Section

_NAMES = tuple(rule.name for rule in RULES)


def _rule(value: str) -> str:
    if value not in _NAMES:
        raise Invalid("policy_rule", f"is not a rule; write one of {', '.join(_NAMES)}")
    return value


RuleName = Annotated[str, AfterValidator(_rule)]
"""Name of a rule."""


class ExceptionConfig(Section):
    """Exception of one resource from one rule."""

    rule: RuleName = Field(examples=["images-by-digest"])
    """Name of the rule."""
    resource: Annotated[str, Field(min_length=1)] = Field(examples=["digits-job"])
    """Name of the resource in the program, as in the finding."""
    reason: Annotated[str, Field(min_length=10)] = Field(examples=["the image of the tutorial has only a tag"])
    """Reason of the exception, which the preview shows."""


class PolicyConfig(Section):
    """Settings of the rules in docs/policy.md."""

    levels: dict[RuleName, Literal["mandatory", "advisory", "disabled"]] = Field(default_factory=dict)
    """Levels of rules that differ from their default."""
    exceptions: tuple[ExceptionConfig, ...] = ()
    """Resources that may break a rule, with the reason."""
    may_replace: tuple[str, ...] = ()
    """Pools with a running job and buckets with checkpoints that a plan may replace or delete, by their names in the
    preview; remove the entries afterwards."""

    def settings(self) -> Settings:
        """Return the settings as plain values."""
        return Settings(
            levels=dict(self.levels),
            exceptions={(each.rule, each.resource): each.reason for each in self.exceptions},
        )
