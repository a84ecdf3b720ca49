"""The resources that the program declares for a stack's settings, with no cloud, no credentials and no engine."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

import pulumi

from commands.environment import PROJECT
from commands.plan import Action, Step
from commands.recording import Record, run
from infra import cloud_image
from infra.local import preflight

STAND_IN = "not the secret"
"""What every secret of a stack is here."""


def recorded(values: Mapping[str, Any], secrets: Iterable[str]) -> list[Record]:
    """What the program registers for the values of `trainyard:` keys. Raises RunError as the program does."""
    named = [f"secrets:{name}" for name in secrets]

    def program() -> None:
        settings = {f"trainyard:{key}": json.dumps(value, default=str) for key, value in values.items()}
        pulumi.runtime.set_all_config(settings | dict.fromkeys(named, STAND_IN), named)
        runpy.run_path(str(PROJECT / "__main__.py"), run_name="__main__")

    with (
        mock.patch.object(cloud_image, "prepare_context", return_value=None),
        mock.patch.object(preflight, "check_machine", return_value=[]),
    ):
        return run(program).records


def difference(before: Iterable[Record], after: Iterable[Record]) -> list[Step]:
    """What is made, changed and removed between two recordings. Whether a change replaces, only a provider knows."""
    old = {(each.type, each.name): each for each in before}
    new = {(each.type, each.name): each for each in after}
    gone = [
        Step(action="delete", type=each.type, name=each.name, inputs=each.inputs)
        for key, each in old.items()
        if key not in new
    ]
    found = []
    for key, each in new.items():
        was = old.get(key)
        changed = () if was is None else _changed(was.inputs, each.inputs)
        action: Action = "create" if was is None else "update" if changed else "same"
        found.append(Step(action=action, type=each.type, name=each.name, inputs=each.inputs, changed=changed))
    return [*gone, *found]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))
