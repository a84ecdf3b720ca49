"""Pulumi policy pack with the rules. $STACK names the stack whose levels and exceptions apply."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from pulumi_policy import (  # noqa: E402  (the engine runs this file itself, so the checkout must be on the path first)
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError  # noqa: E402  (after the checkout is on the path)

from infra.project import project_folder  # noqa: E402  (after the checkout is on the path)
from policy.catalogue import RULES  # noqa: E402  (after the checkout is on the path)
from policy.rules import Rule, Settings  # noqa: E402  (after the checkout is on the path)
from stack.config import load_file  # noqa: E402  (after the checkout is on the path)

LEVELS = {
    "mandatory": EnforcementLevel.MANDATORY,
    "advisory": EnforcementLevel.ADVISORY,
    "disabled": EnforcementLevel.DISABLED,
}
"""Level of a rule -> level of the policy in Pulumi."""
UNKNOWN = "(not known before the update)"
"""Placeholder for a value that is unknown before the update."""


def to_plain(proxy: Any) -> Any:
    """Convert the engine's proxy of an input to dictionaries and lists for the rules."""
    if isinstance(proxy, Mapping):
        return {key: _item(proxy, key) for key in proxy}
    if isinstance(proxy, Sequence) and not isinstance(proxy, str):
        return [_item(proxy, index) for index in range(len(proxy))]
    return proxy


def _item(proxy: Any, key: Any) -> Any:
    try:
        return to_plain(proxy[key])
    except UnknownValueError:
        return UNKNOWN


def validation(rule: Rule, settings: Settings) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    """Return the rule as a validation function for the engine."""

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if not rule.applies(args.resource_type) or (rule.name, args.name) in settings.exceptions:
            return
        if problem := rule.problem(args.name, to_plain(args.props)):
            report(f"{problem.message}; {rule.link}")

    return validate


stack = os.environ.get("STACK")
settings = load_file(project_folder() / f"Pulumi.{stack}.yaml").policy.settings() if stack else Settings()
PolicyPack(
    name="trainyard",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        ResourceValidationPolicy(
            name=rule.name,
            description=rule.why,
            enforcement_level=LEVELS[settings.levels.get(rule.name, rule.level)],
            validate=validation(rule, settings),
        )
        for rule in RULES
    ],
)
