"""Reading a resource's inputs, which have whatever the SDK sent: nested values, pods, statements of IAM. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def value(inputs: Mapping[str, Any], path: str) -> Any:
    """What is at a path of keys joined by dots; None where a key is missing."""
    found: Any = inputs
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def pods(inputs: Any) -> Iterator[Mapping[str, Any]]:
    """Every pod specification inside, whatever the kind of job keeps them in."""
    if isinstance(inputs, Mapping):
        if isinstance(inputs.get("containers"), list):
            yield inputs
        for each in inputs.values():
            yield from pods(each)
    elif isinstance(inputs, list):
        for each in inputs:
            yield from pods(each)


def containers(inputs: Any) -> Iterator[Mapping[str, Any]]:
    """Every container of every pod inside, the initial ones too."""
    for pod in pods(inputs):
        yield from pod["containers"]
        yield from pod.get("initContainers") or []


def statements(policy: Any) -> list[Mapping[str, Any]]:
    """The statements of an IAM policy, as text or as a mapping."""
    document = json.loads(policy) if isinstance(policy, str) else policy or {}
    found = document.get("Statement", [])
    return [found] if isinstance(found, Mapping) else list(found)


def many(one_or_many: Any) -> list[Any]:
    """A list of one or many values."""
    return list(one_or_many) if isinstance(one_or_many, list) else [one_or_many]
