"""The rules as a Pulumi policy pack, with the levels and exceptions of the stack in the environment variable STACK."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from pulumi_policy import (  # noqa: E402  (the engine runs this file by itself, so the project must be on the path first)
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError  # noqa: E402  (after the project is on the path)

from policy.catalogue import RULES  # noqa: E402  (after the project is on the path)
from policy.rules import Rule, Settings  # noqa: E402  (after the project is on the path)
from stack.config import load_file  # noqa: E402  (after the project is on the path)

LEVELS = {
    "mandatory": EnforcementLevel.MANDATORY,
    "advisory": EnforcementLevel.ADVISORY,
    "disabled": EnforcementLevel.DISABLED,
}


UNKNOWN = "(not known before the update)"
"""Placeholder for a value that is unknown before the update."""


def plain(found: Any) -> Any:
    """Return the engine's proxies of inputs as dictionaries and lists, which the rules read."""
    if isinstance(found, Mapping):
        return {key: _known(found, key) for key in found}
    if isinstance(found, Sequence) and not isinstance(found, str):
        return [_known(found, index) for index in range(len(found))]
    return found


def _known(found: Any, key: Any) -> Any:
    try:
        return plain(found[key])
    except UnknownValueError:
        return UNKNOWN


def validation(rule: Rule, settings: Settings) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    """Return the rule as a validation function for the engine."""

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        excused = (rule.name, args.name) in settings.exceptions
        if not rule.applies(args.resource_type) or excused:
            return
        if problem := rule.problem(args.name, plain(args.props)):
            report(f"{problem.message}; {rule.link}")

    return validate


stack = os.environ.get("STACK")
settings = load_file(PROJECT / f"Pulumi.{stack}.yaml").policy.settings() if stack else Settings()
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
