"""Access to a resource's inputs as the SDK sends them: nested values, pods and IAM statements. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def value(inputs: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of keys joined by dots, or None if a key is missing."""
    found: Any = inputs
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def pods(inputs: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and value of every pod specification in the inputs, at any depth."""
    if isinstance(inputs, Mapping):
        if isinstance(inputs.get("containers"), list):
            yield path, inputs
        for key, each in inputs.items():
            yield from pods(each, f"{path}.{key}" if path else key)
    elif isinstance(inputs, list):
        for index, each in enumerate(inputs):
            yield from pods(each, f"{path}[{index}]")


def containers(inputs: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and value of every container of every pod in the inputs, including init containers."""
    for path, pod in pods(inputs):
        for key in ("containers", "initContainers"):
            yield from ((f"{path}.{key}[{index}]", each) for index, each in enumerate(pod.get(key) or []))


def statements(policy: Any) -> list[Mapping[str, Any]]:
    """Return the statements of an IAM policy, which is a text or a mapping."""
    document = json.loads(policy) if isinstance(policy, str) else policy or {}
    found = document.get("Statement", [])
    return [found] if isinstance(found, Mapping) else list(found)


def many(one_or_many: Any) -> list[Any]:
    """Return one value or a list of values as a list."""
    return list(one_or_many) if isinstance(one_or_many, list) else [one_or_many]
