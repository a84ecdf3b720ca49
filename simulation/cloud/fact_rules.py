"""Rules of a provider across inputs: conflicts, requirements, and choices between inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulation.cloud.fact_table import FactTable
from simulation.cloud.state import Properties
from simulation.cloud.values import Unknown

Fault = tuple[str, str, str]
PATHS = ("conflicts", "exactly_one_of", "at_least_one_of", "required_with")
"""Keys of facts that list other inputs."""


def broken_rules(table: FactTable, inputs: Properties) -> Iterator[Fault]:
    """Yield the problems that break a rule of the schema or a rule read by hand."""
    yield from _schema_rules(table, inputs)
    for rule in table.rules:
        check = _RULES.get(rule["rule"])
        if check:
            yield from ((where, why, rule["line"]) for where, why in check(rule, inputs))


def _schema_rules(table: FactTable, inputs: Properties) -> Iterator[Fault]:
    done = set[tuple[str, ...]]()
    for path, fact in table.inputs.items():
        if not any(key in fact for key in PATHS) or not _has_parent(inputs, path):
            continue
        yield from _conflicts(path, fact, inputs)
        yield from _needs(path, fact, inputs)
        for key in ("exactly_one_of", "at_least_one_of"):
            paths = tuple(fact.get(key, ()))
            if paths and (key, *paths) not in done:
                done.add((key, *paths))
                yield from ((where, why, fact["line"]) for where, why in _one_of(key, paths, inputs))


def _conflicts(path: str, fact: Mapping[str, Any], inputs: Properties) -> Iterator[Fault]:
    for other in fact.get("conflicts", ()):
        if path != other and is_set(inputs, path) and is_set(inputs, other):
            yield path, f"cannot be set together with {other}", fact["line"]


def _needs(path: str, fact: Mapping[str, Any], inputs: Properties) -> Iterator[Fault]:
    for other in fact.get("required_with", ()):
        if is_set(inputs, path) and not is_set(inputs, other):
            yield path, f"needs {other}", fact["line"]


def _one_of(key: str, paths: tuple[str, ...], inputs: Properties) -> Iterator[tuple[str, str]]:
    present = [each for each in paths if is_set(inputs, each)]
    unknown = any(isinstance(value, Unknown) for each in paths for value in values_at(inputs, each))
    if not present and not unknown:
        yield paths[0], f"one of {', '.join(paths)} must be set"
    elif key == "exactly_one_of" and len(present) > 1:
        yield present[1], f"only one of {', '.join(paths)} can be set; {', '.join(present)} are"


def _conflict(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    present = [
        each for each in rule["inputs"] if is_set(inputs, each) and (not rule.get("not_zero") or _truth(inputs, each))
    ]
    if holds(rule.get("when", {}), inputs) and len(present) > 1:
        yield present[1], f"cannot be set together with {present[0]}"


def _excluded(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    for each in rule["inputs"]:
        if holds(rule["when"], inputs) and is_set(inputs, each):
            yield each, f"cannot be set with {_condition(rule['when'])}"


def _any_of(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    if holds(rule.get("when", {}), inputs) and not any(is_set(inputs, each) for each in rule["inputs"]):
        yield rule["inputs"][0], f"one of {', '.join(rule['inputs'])} must be set"


def _excludes_value(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    other = values_at(inputs, rule["value_of"])
    for each in values_at(inputs, rule["input"]):
        if each in other and not isinstance(each, Unknown):
            yield rule["input"], f"{each!r} must not be the value of {rule['value_of']}"


_RULES = {"conflicts": _conflict, "excluded": _excluded, "any_of": _any_of, "excludes_value": _excludes_value}
"""Kind of a rule read by hand -> its check. Other kinds apply only to changes, see `fact_diff`."""


def holds(condition: Mapping[str, Any], inputs: Properties) -> bool:
    """Return True if each input of a condition has the given value.

    A list allows several values. Null means that the input is not set.
    """
    for path, wanted in condition.items():
        found = values_at(inputs, path) or [None]
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if not any(each in allowed for each in found if not isinstance(each, Unknown)):
            return False
    return True


def _condition(condition: Mapping[str, Any]) -> str:
    return " and ".join(f"{path} = {value}" for path, value in condition.items())


def values_at(inputs: Any, path: str) -> list[Any]:
    """Return the values at a path, for all elements of lists on the way."""
    found = [inputs]
    for key in path.split("."):
        found = [each.get(key) for each in found if isinstance(each, dict)]
        found = [item for each in found for item in (each if isinstance(each, list) else [each])]
    return [each for each in found if each is not None]


def is_set(inputs: Properties, path: str) -> bool:
    """Return True if the input has a value. An unknown value counts; an empty list does not."""
    return bool(values_at(inputs, path))


def _truth(inputs: Properties, path: str) -> bool:
    return any(bool(each) for each in values_at(inputs, path))


def _has_parent(inputs: Properties, path: str) -> bool:
    parent = path.rpartition(".")[0]
    return not parent or any(isinstance(each, dict) for each in values_at(inputs, parent))
