"""Diff of a resource's inputs by the facts of its type: changed inputs, and changes that replace the resource."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulation.cloud.fact_table import FactTable, converted, parts
from simulation.cloud.state import Properties
from simulation.cloud.values import Unknown


@dataclass(frozen=True, kw_only=True)
class InputChange:
    """An input that differs."""

    path: str
    """Path in the table, without indices."""
    replaces: bool
    """True if the change replaces the resource."""


def input_changes(table: FactTable, old: Properties, new: Properties) -> list[InputChange]:
    """Return the changes in the provider's plan.

    The plan ignores removed values that the cloud computes, and differences that the provider suppresses.
    """
    found = list(_Diff(table).block("", _without_internal(old), _without_internal(new)))
    return list({(each.path, each.replaces): each for each in found}.values())


def _without_internal(properties: Properties) -> Properties:
    return {key: value for key, value in properties.items() if not key.startswith("__")}


class _Diff:
    def __init__(self, table: FactTable) -> None:
        self._inputs = table.inputs
        self._removal_replaces = {each["input"] for each in table.rules_of("removal_replaces")}

    def block(self, prefix: str, old: Properties, new: Properties) -> Iterator[InputChange]:
        """Compare the inputs of a block."""
        for key in sorted({*old, *new}):
            yield from self._input(prefix + key, old.get(key), new.get(key))

    def _input(self, path: str, old: Any, new: Any) -> Iterator[InputChange]:
        fact = self._inputs.get(path, {"type": "?"})
        collection, element = parts(fact["type"])
        if fact["type"] == "?":
            if old != new or isinstance(new, Unknown):
                yield self._change(path)
        elif isinstance(new, Unknown) or isinstance(old, Unknown):
            yield self._change(path)
        elif _is_empty(new) and (fact.get("computed") or fact.get("suppress") == MISSING_BLOCK):
            if not _is_empty(old) and path in self._removal_replaces:
                yield InputChange(path=path, replaces=True)
        elif fact["type"] == "block":
            yield from self._one_block(path, old, new)
        elif element == "block":
            yield from self._blocks(path, collection, old or [], new or [])
        elif collection:
            if not _same_elements(collection, element, old, new):
                yield self._change(path)
        else:
            yield from self._scalar(path, fact, old, new)

    def _one_block(self, path: str, old: Any, new: Any) -> Iterator[InputChange]:
        if new is None and old is not None and path in self._removal_replaces:
            yield InputChange(path=path, replaces=True)
        elif (old is None) != (new is None):
            yield self._change(path)
        yield from self.block(f"{path}.", old or {}, new or {})

    def _blocks(self, path: str, collection: str, old: list[Any], new: list[Any]) -> Iterator[InputChange]:
        if any(isinstance(each, Unknown) for each in (*old, *new)):
            yield self._change(path)
            return
        if collection == "set":
            old, new = [each for each in old if each not in new], [each for each in new if each not in old]
            pairs = [*((each, {}) for each in old), *(({}, each) for each in new)]
        else:
            empty: list[Any] = [{}] * abs(len(old) - len(new))
            pairs = list(zip([*old, *empty], [*new, *empty], strict=False))
        if len(old) != len(new):
            yield self._change(path)
        for before, after in pairs:
            yield from self.block(f"{path}.", before, after)

    def _scalar(self, path: str, fact: Mapping[str, Any], old: Any, new: Any) -> Iterator[InputChange]:
        before, after = (_stored_value(fact, each) for each in (old, new))
        if before == after or is_suppressed(fact.get("suppress"), before, after):
            return
        condition = fact.get("replace_if")
        replaces = replaces_if(condition, before, after) if condition else bool(fact.get("force_new"))
        yield InputChange(path=path, replaces=replaces)

    def _change(self, path: str) -> InputChange:
        return InputChange(path=path, replaces=bool(self._inputs.get(path, {}).get("force_new")))


def _is_empty(value: Any) -> bool:
    return value is None or value in ([], {})


def _stored_value(fact: Mapping[str, Any], value: Any) -> Any:
    """Return a scalar as the provider stores it: with its default, and with zero for a missing value."""
    given = fact.get("default") if value is None else value
    zero = {"bool": False, "int": 0, "float": 0.0}.get(fact["type"], "")
    try:
        return zero if given is None else converted(fact["type"], given)
    except ValueError:
        return given


def _same_elements(collection: str, element: str, old: Any, new: Any) -> bool:
    if collection == "map":
        return _elements(element, (old or {}).items()) == _elements(element, (new or {}).items())
    first, second = _elements(element, enumerate(old or [])), _elements(element, enumerate(new or []))
    if collection == "set":
        return sorted(map(str, first.values())) == sorted(map(str, second.values()))
    return first == second


def _elements(kind: str, items: Any) -> dict[Any, Any]:
    """Return keys and values, with the values converted to the provider's type."""
    return {key: converted(kind, each) if kind != "block" else each for key, each in items if each is not None}


_DEFAULT = re.compile(r"EmptyOrDefaultStringSuppress\('(?P<word>.*)'\)")
_VERSIONED = re.compile(r"^https://[^/]+/(compute/)?[^/]+/")


def _same_link(old: Any, new: Any) -> bool:
    """Return True if two links differ only in host and API version. A plain name matches a whole link."""
    if "/" not in str(new):
        return str(old).rpartition("/")[2] == str(new)
    return _VERSIONED.sub("", str(old)) == _VERSIONED.sub("", str(new))


def _same_name(old: Any, new: Any) -> bool:
    return str(old).rpartition("/")[2] == str(new).rpartition("/")[2]


def _same_letters(old: Any, new: Any) -> bool:
    return str(old).lower() == str(new).lower()


def _same_project(old: Any, new: Any) -> bool:
    return str(old).removeprefix("projects/") == str(new).removeprefix("projects/")


def _same_json(old: Any, new: Any) -> bool:
    try:
        return bool(json.loads(old) == json.loads(new))
    except (TypeError, ValueError):
        return False


SUPPRESSIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "CompareSelfLinkOrResourceName": _same_link,
    "CompareSelfLinkRelativePaths": _same_link,
    "CompareResourceNames": _same_name,
    "CompareProjectName": _same_project,
    "CaseDiffSuppress": _same_letters,
    "StorageBucketDiffSuppress": _same_name,
    "SuppressEquivalentPolicyDiffs": _same_json,
    "SuppressEquivalentIAMPolicyDocuments": _same_json,
    "SuppressEquivalentJSONDiffs": _same_json,
    "SuppressEquivalentStringCaseInsensitive": _same_letters,
}
"""Name of a provider's function -> function that returns True if the provider treats both values as equal.

Other names are not simulated.
"""
MISSING_BLOCK = "SuppressMissingOptionalConfigurationBlock"
"""Name of the provider's function that ignores the removal of a block."""


def is_suppressed(name: str | None, old: Any, new: Any) -> bool:
    """Return True if the provider ignores the difference between two values."""
    if name is None:
        return False
    if match := _DEFAULT.fullmatch(name):
        return {old, new} <= {"", match["word"]}
    return name in SUPPRESSIONS and SUPPRESSIONS[name](old, new)


def _shrinks(old: Any, new: Any) -> bool:
    """Return True if the new range does not contain the old one. A subnet's range can only grow in place."""
    try:
        before, after = ipaddress.ip_network(old, strict=False), ipaddress.ip_network(new, strict=False)
    except ValueError:
        return False
    assert isinstance(before, ipaddress.IPv4Network)
    return not (isinstance(after, ipaddress.IPv4Network) and before.subnet_of(after))


def _is_turned_off(old: Any, new: Any) -> bool:
    return bool(old) and not new


CONDITIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "IsShrinkageIpCidr": _shrinks,
    "isBeenEnabled": _is_turned_off,
    "isPolicyLocked": _is_turned_off,
}
"""Name of a provider's condition -> function of the old and the new value."""


def replaces_if(condition: str, old: Any, new: Any) -> bool:
    """Return True if a change under this condition replaces the resource.

    Raises KeyError for an unknown condition.
    """
    return CONDITIONS[condition](old, new)
