"""Values converted to a Terraform provider's types. Strings may hold numbers and booleans."""

from __future__ import annotations

from typing import Any

from simulation.cloud.values import Unknown

_WORDS = {"true": True, "false": False}
DESCRIPTIONS = {"bool": "true or false", "int": "a whole number", "float": "a number", "string": "text"}


def converted(kind: str, value: Any) -> Any:
    """Return a scalar converted to the provider's type. Raises ValueError."""
    if isinstance(value, Unknown):
        return value
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _WORDS:
            return _WORDS[value]
    elif kind == "string":
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            return str(value)
    elif not isinstance(value, bool) and isinstance(value, int | float | str):
        number = float(value)
        if kind == "float" or number.is_integer():
            return number if kind == "float" else int(number)
    raise ValueError(f"must be {DESCRIPTIONS[kind]}, not {value!r}")


def parts(kind: str) -> tuple[str, str]:
    """Return the collection and the element of a type such as `list(string)`; for a scalar, no collection."""
    outer, _, inner = kind.partition("(")
    return (outer, inner.removesuffix(")")) if inner else ("", outer)
