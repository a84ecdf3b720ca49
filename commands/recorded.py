"""The resources that the program declares for a stack's settings, with no cloud, no credentials and no engine."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import pulumi

from commands.environment import PROJECT
from commands.plan import Action, Step
from commands.recording import Record, run
from infra import cloud_image
from infra.local import preflight
from rehearsal.cloud.checking import changes
from setup.stand_ins.kubernetes.force_new import force_new_fields

CLOUDS = ("gcp:", "aws:")
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
        engine = run(program)
    kept = {name for name, request in engine.requests.items() if request.retainOnDelete}
    return [replace(each, kept=each.name in kept) for each in engine.records]


def difference(before: Iterable[Record], after: Iterable[Record]) -> list[Step]:
    """What is made, changed, made again and removed between two recordings.

    Which changes make a resource again is what the simulated clouds and the Kubernetes provider's own rules say.
    """
    old = {(each.type, each.name): each for each in before}
    new = {(each.type, each.name): each for each in after}
    gone = [
        Step(action="delete", type=each.type, name=each.name, inputs=each.inputs, kept=each.kept)
        for key, each in old.items()
        if key not in new
    ]
    found = []
    for key, each in new.items():
        was = old.get(key)
        action: Action = "create" if was is None else "same"
        changed: tuple[str, ...] = ()
        if was is not None:
            changed, replaced = _changed(each.type, was.inputs, each.inputs)
            action = "replace" if replaced else "update" if changed else "same"
            changed = replaced or changed
        step = Step(action=action, type=each.type, name=each.name, inputs=each.inputs, changed=changed, kept=each.kept)
        found.append(step)
    return [*gone, *found]


def _changed(kind: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs that differ, and those of them that mean another resource."""
    changed = tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))
    if kind.startswith(CLOUDS):
        return changed, tuple(changes(kind, before, after)[1])
    if kind.startswith("kubernetes:"):
        fixed = force_new_fields(after, secrets_mutable=False, config_maps_mutable=False)
        return changed, tuple(path[1:] for path in fixed if _at(before, path) != _at(after, path))
    return changed, ()


def _at(found: Any, path: str) -> Any:
    for key in path.removeprefix(".").split("."):
        if key.endswith("[*]"):
            return found
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
