"""The rules as a Pulumi policy pack, with the levels and exceptions of the stack in the environment's STACK."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from pulumi_policy import (  # noqa: E402 - the engine runs this file alone, outside the project
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

from policy.catalogue import RULES  # noqa: E402
from policy.review import settings_of  # noqa: E402
from policy.rules import Rule, Settings  # noqa: E402

LEVELS = {
    "mandatory": EnforcementLevel.MANDATORY,
    "advisory": EnforcementLevel.ADVISORY,
    "disabled": EnforcementLevel.DISABLED,
}


def validation(rule: Rule, settings: Settings) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    """The rule as the engine calls it."""

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        excused = (rule.name, args.name) in settings.exceptions
        if not rule.applies(args.resource_type) or excused:
            return
        inputs: Any = args.props
        if message := rule.check(inputs):
            report(f"{message}. {rule.why} {rule.link}")

    return validate


settings = settings_of(os.environ.get("STACK"))
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
