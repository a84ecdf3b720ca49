"""Inputs in which the new outputs of another resource are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulation.cloud.values import UNKNOWN

LEAST_LENGTH = 5
"""Minimum characters of an output that is also searched inside other text."""


def with_unknown_outputs(value: Any, outputs: Mapping[str, Any], *, whole: bool = True) -> Any:
    """Return an input in which the parts made of outputs are unknown.

    If no part shows an output, the output was transformed: the whole input is unknown, unless `whole` is False.
    """
    texts = {str(each) for each in _leaves(dict(outputs)) if each not in (None, "")}
    found = _replaced(value, texts)
    return UNKNOWN if whole and found == value else found


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def _replaced(value: Any, texts: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, texts) for each in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    inside = any(each in text for each in texts if len(each) >= LEAST_LENGTH)
    return UNKNOWN if text in texts or inside else value
