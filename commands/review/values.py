"""Values that differ between two sets of a resource's inputs, formatted for a reviewer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from simulation.cloud.values import SIGNATURE_KEY, UNKNOWNS

MOST_VALUES = 3
"""Maximum number of values of one change that are shown."""
LONGEST = 60
"""Maximum characters of a value. The middle of a longer one is left out."""
ABSENT = object()
"""Marker of a missing value."""


def spelled(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a changed path with its old and new values: ``nodeCount `2` -> `4` ``.

    Return the path alone if the values cannot be shown: secrets, multi-line text and values known only later.
    """
    begin, end = _at(before, path), _at(after, path)
    found = [f"{where} {_value(old)} -> {_value(new)}" for where, old, new in _leaves(path, begin, end)]
    more = [f"and {len(found) - MOST_VALUES} more"] if len(found) > MOST_VALUES else []
    return ", ".join([*found[:MOST_VALUES], *more]) or path


def _leaves(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each single value that differs and can be shown."""
    if old == new:
        return
    if all(_is_branch(each) for each in (old, new)):
        olds, news = _branches(old), _branches(new)
        for key in dict.fromkeys([*olds, *news]):
            yield from _leaves(f"{path}{key}", olds.get(key, ABSENT), news.get(key, ABSENT))
    elif all(_is_shown(each) for each in (old, new)):
        yield path, old, new


def _is_branch(value: Any) -> bool:
    return value is ABSENT or (isinstance(value, list | Mapping) and SIGNATURE_KEY not in value)


def _is_shown(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" not in value and value not in UNKNOWNS | {"[secret]"}
    return value is ABSENT or value is None or isinstance(value, bool | int | float)


def _branches(value: Any) -> dict[str, Any]:
    """Return the parts of a value by the end of their path. List items go by their unique names, else by position."""
    if value is ABSENT:
        return {}
    if isinstance(value, Mapping):
        return {f".{key}": each for key, each in value.items()}
    names = [each.get("name") if isinstance(each, Mapping) else None for each in value]
    if all(isinstance(each, str) for each in names) and len(set(names)) == len(names):
        return {f"[{name}]": each for name, each in zip(names, value, strict=True)}
    return {f"[{place}]": each for place, each in enumerate(value)}


def _value(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) and value else json.dumps(value)
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]}...{text[-half:]}"
    return "`" + text.replace("`", "'") + "`"


def _at(found: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return ABSENT
        found = found[key]
    return found
