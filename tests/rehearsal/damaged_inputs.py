"""Changes of a resource's valid inputs that the schema of its real provider rejects."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulation.cloud.checking import kind_of
from simulation.cloud.fact_check import holds, is_set
from simulation.cloud.fact_table import FactTable, parts
from simulation.cloud.model import Properties
from simulation.cloud.values import Unknown

Fact = Mapping[str, Any]
Keys = tuple[str | int, ...]
REMOVED = object()
"""Value of an edit that removes the input."""
BAD_VALUES: Mapping[str, Any] = {
    "ValidateGCEName": "Has_Capitals",
    "ValidateRFC1035Name": "1-begins-with-a-digit",
    "ValidateIpCidrRange": "10.0.0.0/99",
    "IsCIDRNetwork": "10.0.0.1/16",
    "ValidateRFC3339Date": "2026-01-01",
    "validateIAMMember": "somebody@example.com",
    "labelKeyValidator": {"Has Spaces": "x"},
    "ValidateRegexp": "train@example.com",
    "validateProjectServiceService": "container",
    "gkeClusterName": "Train",
    "ValidARN": "role/nodes",
    "NoZeroValues": "",
    "StringIsJSON": "{",
    "validateIPv4CIDRPrivateRange": "8.8.0.0/16",
    "ValidIPv4CIDRNetworkAddress": "10.0.0.1/16",
    "ValidCIDRNetworkAddress": "0.0.0.0",
    "ValidLaunchTemplateID": "template",
    "validClusterName": "-train",
    "validLogGroupName": "two words",
    "ValidIAMPolicyJSON": "[]",
}
"""Name of a check in a provider's source -> a value that the check rejects."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Change of valid inputs that the provider's schema rejects."""

    kind: str
    where: str
    """Input that Check must report."""
    line: str
    """Line of the provider's source that Check must report."""
    edits: tuple[tuple[Keys, Any], ...]
    """Keys of inputs -> their new values."""

    def apply(self, inputs: Properties) -> Properties:
        """Return a damaged copy of the inputs."""
        damaged = copy.deepcopy(inputs)
        for keys, value in self.edits:
            holder: Any = damaged
            for key in keys[:-1]:
                holder = holder[key]
            if value is REMOVED:
                del holder[keys[-1]]
            else:
                holder[keys[-1]] = value
        return damaged


def damages(table: FactTable, inputs: Properties) -> Iterator[Damage]:
    """Yield every damage to valid inputs that this module supports."""
    named = kind_of(table.type).autoname
    for prefix, keys, values in _blocks(table, inputs, "", ()):
        names = table.children.get(prefix, ())
        if names:
            line = table.inputs[names[0]]["line"]
            yield _damage("unknown input", (*keys, "noSuchInput"), "x", line)
        for path in names:
            key, fact = path[len(prefix) :], table.inputs[path]
            value = values.get(key)
            if isinstance(value, Unknown):
                continue
            if value is not None:
                yield from _wrong_types(fact, (*keys, key), value)
                # Pulumi generates a name for some resources without one.
                if fact.get("required") and not (named and path == named.property):
                    yield _damage("required input removed", (*keys, key), REMOVED, fact["line"])
            yield from _bad_values(fact, (*keys, key))
    yield from _schema_rules(table, inputs)
    yield from _hand_rules(table, inputs)


def _damage(kind: str, keys: Keys, value: Any, line: str) -> Damage:
    return Damage(kind=kind, where=_path_text(keys), line=line, edits=((keys, value),))


def _path_text(keys: Keys) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in keys).removeprefix(".")


def _blocks(table: FactTable, values: Any, prefix: str, keys: Keys) -> Iterator[tuple[str, Keys, Properties]]:
    """Yield each block that is set: its path in the table, its keys and its inputs."""
    yield prefix, keys, values
    for path in table.children.get(prefix, ()):
        key = path[len(prefix) :]
        found = values.get(key)
        if isinstance(found, dict) and table.inputs[path]["type"] == "block":
            yield from _blocks(table, found, f"{path}.", (*keys, key))
        elif isinstance(found, list) and parts(table.inputs[path]["type"])[1] == "block":
            for index, each in enumerate(found):
                if isinstance(each, dict):
                    yield from _blocks(table, each, f"{path}.", (*keys, key, index))


_WRONG_SCALARS: Mapping[str, tuple[Any, ...]] = {
    "bool": ("maybe", 2, ["x"]),
    "int": ("many", 1.5, {"a": "b"}),
    "float": ("many", ["x"]),
    "string": (["x"], {"a": "b"}),
}


def _wrong_types(fact: Fact, keys: Keys, value: Any) -> Iterator[Damage]:
    collection, element = parts(fact["type"])
    wrong = ("x", 7) if collection or element == "block" else _WRONG_SCALARS[element]
    for each in wrong:
        yield _damage("wrong type", keys, each, fact["line"])
    inner = ("x",) if element == "block" else _WRONG_SCALARS[element]
    if collection and value:
        first = next(iter(value)) if collection == "map" else 0
        yield _damage("wrong type", (*keys, first), inner[-1], fact["line"])


def _bad_values(fact: Fact, keys: Keys) -> Iterator[Damage]:
    collection, element = parts(fact["type"])
    if element == "block":
        yield from _bad_counts(fact, keys)
        return
    for kind, value in _rejected_values(fact, element):
        if collection in ("list", "set"):
            yield Damage(kind=kind, where=_path_text((*keys, 0)), line=fact["line"], edits=((keys, [value]),))
        elif collection == "" or isinstance(value, dict):
            yield _damage(kind, keys, value, fact["line"])
    yield from _bad_counts(fact, keys)


def _bad_counts(fact: Fact, keys: Keys) -> Iterator[Damage]:
    collection, element = parts(fact["type"])
    if collection not in ("list", "set"):
        return
    one: Any = {} if element == "block" else "x"
    if fact.get("required") and fact.get("min_items"):
        yield _damage("number of elements", keys, [], fact["line"])
    if "max_items" in fact:
        yield _damage("number of elements", keys, [one] * (fact["max_items"] + 1), fact["line"])


def _rejected_values(fact: Fact, element: str) -> Iterator[tuple[str, Any]]:
    """Yield kinds of damage, each with a value that the facts of a scalar reject."""
    if words := fact.get("words"):
        yield "word outside the list", 4711 if element == "int" else "NO_SUCH_WORD"
        if element == "string" and not fact.get("ignore_case") and words[0].swapcase() not in words:
            yield "word outside the list", words[0].swapcase()
    if "min" in fact:
        yield "number out of bounds", fact["min"] - 1
    if "max" in fact:
        yield "number out of bounds", fact["max"] + 1
    if length := fact.get("length"):
        yield "length out of bounds", "x" * (length[1] + 1)
        if length[0] > 1 or (length[0] == 1 and not fact.get("or_empty")):
            yield "length out of bounds", "x" * (length[0] - 1)
    patterns = fact.get("pattern", [])
    for pattern in patterns if isinstance(patterns, list) else [patterns]:
        bad = next((each for each in ("?!", "", "x" * 300) if not re.search(pattern, each)), None)
        if bad is not None and not (bad == "" and fact.get("or_empty")):
            yield "pattern broken", bad
    if "excluded_pattern" in fact:
        bad = next((each for each in ("sg-1", "a--usw2-az1--x-s3") if re.search(fact["excluded_pattern"], each)), None)
        if bad is not None:
            yield "pattern broken", bad
    checks = fact.get("check", [])
    for check in checks if isinstance(checks, list) else [checks]:
        name = check.partition("(")[0]
        if name in BAD_VALUES:
            yield "provider's check broken", BAD_VALUES[name]


def _schema_rules(table: FactTable, inputs: Properties) -> Iterator[Damage]:
    for path, fact in table.inputs.items():
        for other in fact.get("conflicts", ()):
            if path != other and is_set(inputs, path) and (edit := _setting(table, inputs, other)):
                yield Damage(kind="conflict", where=path, line=fact["line"], edits=(edit,))
        for other in fact.get("required_with", ()):
            if not is_set(inputs, other) and (edit := _setting(table, inputs, path)):
                yield Damage(kind="companion missing", where=path, line=fact["line"], edits=(edit,))
        yield from _one_of(table, inputs, fact)


def _one_of(table: FactTable, inputs: Properties, fact: Fact) -> Iterator[Damage]:
    for key in ("exactly_one_of", "at_least_one_of"):
        paths = fact.get(key, ())
        present = [each for each in paths if is_set(inputs, each)]
        if len(present) != 1 or not all(_plain(table, each) for each in paths):
            continue
        # Check reports the first input that has the rule.
        line = next(each["line"] for each in table.inputs.values() if each.get(key) == paths)
        removal = (tuple(present[0].split(".")), REMOVED)
        yield Damage(kind="no alternative set", where=paths[0], line=line, edits=(removal,))
        for other in paths if key == "exactly_one_of" else ():
            if edit := _setting(table, inputs, other):
                second = [each for each in paths if each in (other, present[0])][1]
                yield Damage(kind="two alternatives set", where=second, line=line, edits=(edit,))


def _plain(table: FactTable, path: str) -> bool:
    """Return True if the path to an input contains no list."""
    names = path.split(".")
    return all(table.inputs[".".join(names[:count])]["type"] == "block" for count in range(1, len(names)))


def _setting(table: FactTable, inputs: Properties, path: str) -> tuple[Keys, Any] | None:
    """Return the edit that sets an unset input, or None if this is impossible without setting a block or a list."""
    if is_set(inputs, path) or not _plain(table, path):
        return None
    *blocks, key = path.split(".")
    holder: Any = inputs
    for each in blocks:
        holder = holder.get(each)
        if not isinstance(holder, dict):
            return None
    return (*blocks, key), _sample(table.inputs[path])


def _sample(fact: Fact) -> Any:
    collection, element = parts(fact["type"])
    if collection == "map":
        return {"a": "b"}
    scalar = {"bool": True, "string": "x", "block": {}}.get(element, fact.get("min", 1))
    value = fact["words"][0] if "words" in fact else scalar
    return [value] if collection else value


def _hand_rules(table: FactTable, inputs: Properties) -> Iterator[Damage]:
    """Yield damage to the rules that a person read from the provider's source."""
    for rule in table.rules:
        if not holds(rule.get("when", {}), inputs):
            continue
        paths = rule.get("inputs", ())
        if rule["rule"] == "conflicts":
            yield from _hand_conflicts(table, inputs, rule)
        elif rule["rule"] == "excluded":
            for path in paths:
                if edit := _setting(table, inputs, path):
                    yield Damage(kind="conflict", where=path, line=rule["line"], edits=(edit,))
        elif rule["rule"] == "any_of" and all(_plain(table, each) for each in paths):
            present = [tuple(each.split(".")) for each in paths if is_set(inputs, each)]
            if present:
                edits = tuple((keys, REMOVED) for keys in present)
                yield Damage(kind="no alternative set", where=paths[0], line=rule["line"], edits=edits)


def _hand_conflicts(table: FactTable, inputs: Properties, rule: Fact) -> Iterator[Damage]:
    present = [each for each in rule["inputs"] if is_set(inputs, each)]
    for other in rule["inputs"]:
        if len(present) == 1 and (edit := _setting(table, inputs, other)):
            keys, value = edit
            second = [each for each in rule["inputs"] if each in (other, present[0])][1]
            # The provider treats some conflicting numbers as unset if they are zero.
            edit = keys, value or 1
            yield Damage(kind="conflict", where=second, line=rule["line"], edits=(edit,))
