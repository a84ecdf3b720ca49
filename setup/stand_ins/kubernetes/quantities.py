"""Resource quantities in the one spelling in which the API server stores them: `1000m` is `1`, `1.5Gi` is `1536Mi`."""

import re
from fractions import Fraction
from math import ceil
from typing import Any

BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
DECIMAL = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
SPELLING = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")
NANO = Fraction(1, 10**9)

MAPS_OF_QUANTITIES = frozenset(
    [
        "limits",
        "requests",
        "capacity",
        "allocatable",
        "hard",
        "overhead",
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ]
)
QUANTITIES = frozenset({"sizeLimit", "divisor"})


def canonical(text: str) -> str:
    """The server's spelling of a quantity; a text that is none is returned as it is, for the server to refuse."""
    match = SPELLING.fullmatch(text)
    if match is None:
        return text
    number, suffix = Fraction(match[1]), match[2] or ""
    if suffix[:1] in ("e", "E") and suffix[1:]:
        return _exponential(number * Fraction(10) ** int(suffix[1:]))
    if suffix in BINARY and suffix:
        number = number * 1024 ** BINARY.index(suffix)
        if abs(number) >= 1024:
            return _binary(number)
        return _decimal(number)
    return _decimal(number * Fraction(1000) ** (DECIMAL.index(suffix) - DECIMAL.index("")))


def _binary(number: Fraction) -> str:
    whole, exponent = ceil(number), 0
    while whole and whole % 1024 == 0 and exponent + 1 < len(BINARY):
        whole, exponent = whole // 1024, exponent + 1
    return f"{whole}{BINARY[exponent]}"


def _decimal(number: Fraction) -> str:
    nanos, exponent = ceil(number / NANO), 0
    while nanos and nanos % 1000 == 0 and exponent + 1 < len(DECIMAL):
        nanos, exponent = nanos // 1000, exponent + 1
    return f"{nanos}{DECIMAL[exponent]}" if nanos else "0"


def _exponential(number: Fraction) -> str:
    nanos, exponent = ceil(number / NANO), -9
    while nanos and nanos % 1000 == 0:
        nanos, exponent = nanos // 1000, exponent + 3
    return f"{nanos}e{exponent}" if nanos and exponent else str(nanos)


def canonicalize(value: Any) -> Any:
    """A copy of a built-in kind's manifest with every quantity in the server's spelling."""
    if isinstance(value, list):
        return [canonicalize(element) for element in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, element in value.items():
        if key in MAPS_OF_QUANTITIES and isinstance(element, dict):
            result[key] = {name: _spelled(quantity) for name, quantity in element.items()}
        elif key in QUANTITIES:
            result[key] = _spelled(element)
        else:
            result[key] = canonicalize(element)
    return result


def _spelled(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return canonical(value) if isinstance(value, str) else canonicalize(value)
