"""Check of a resource's inputs against the fact table of its type, as the provider checks them before any API call."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from settings.problem import Problem
from simulation.cloud.fact_table import DESCRIPTIONS, FactTable, converted, parts
from simulation.cloud.model import Properties, problem, values_at
from simulation.cloud.values import Unknown

_LABEL = r"[a-z](?:[-a-z0-9]{%d,%d}[a-z0-9])"
_BUCKET_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)")
Fact = Mapping[str, Any]
SchemaError = tuple[str, str, str]
"""Path of the input, error, and place of this check in the provider's source."""
RELATIONS = ("conflicts", "exactly_one_of", "at_least_one_of", "required_with")
"""Keys of a fact that list other inputs."""


def problems(table: FactTable, inputs: Properties) -> list[Problem]:
    """Return a problem for each input that the provider's schema and rules reject."""
    found = [*_block(table, inputs, "", ""), *_rule_errors(table, inputs)]
    code = f"rehearsal.{table.type.partition(':')[0]}.provider_schema"
    return [problem(code, where, why, table.source(line)) for where, why, line in found]


def unchecked(table: FactTable, inputs: Properties) -> list[str]:
    """Return the inputs that the provider checks in a way that the rehearsal does not simulate."""
    checked = ((path, name) for path, fact in table.inputs.items() for name in _listed(fact.get("check")))
    return sorted({path for path, name in checked if named_check(name) is None and is_set(inputs, path)})


def _block(table: FactTable, values: Properties, prefix: str, where: str) -> Iterator[SchemaError]:
    """Check the inputs of a block. `prefix` is the block's path in the table, and `where` its path in the inputs."""
    names = table.children.get(prefix, ())
    for key, value in values.items():
        if key.startswith("__") or value is None:
            continue
        if prefix + key in table.inputs:
            yield from _input(table, prefix + key, where + key, value)
        else:
            near = difflib.get_close_matches(key, [name[len(prefix) :] for name in names], n=1)
            block = prefix.rstrip(".").rpartition(".")[2] or table.type.rpartition(":")[2]
            line = table.inputs[names[0]]["line"] if names else ":1"
            yield where + key, f"is not an input of {block}" + (f"; did you mean {near[0]}?" if near else ""), line
    for name in names:
        key = name[len(prefix) :]
        if table.inputs[name].get("required") and values.get(key) is None:
            yield where + key, "is missing: the provider requires it", table.inputs[name]["line"]


def _input(table: FactTable, path: str, where: str, value: Any) -> Iterator[SchemaError]:
    fact = table.inputs[path]
    if isinstance(value, Unknown):
        return
    collection, element = parts(fact["type"])
    if fact["type"] == "block":
        yield from _one_block(table, path, where, value)
    elif collection == "map":
        yield from _map(fact, element, where, value)
    elif collection:
        if not isinstance(value, list):
            yield where, f"must be a list, not {value!r}", fact["line"]
            return
        yield from _count(fact, where, len(value))
        for index, each in enumerate(value):
            if isinstance(each, Unknown):
                continue
            if element == "block":
                yield from _one_block(table, path, f"{where}[{index}]", each)
            else:
                yield from _scalar(fact, element, f"{where}[{index}]", each)
    else:
        yield from _scalar(fact, element, where, value)


def _one_block(table: FactTable, path: str, where: str, value: Any) -> Iterator[SchemaError]:
    if isinstance(value, dict):
        yield from _block(table, value, f"{path}.", f"{where}.")
    else:
        yield where, f"must be an object, not {value!r}", table.inputs[path]["line"]


def _map(fact: Fact, element: str, where: str, value: Any) -> Iterator[SchemaError]:
    if not isinstance(value, dict):
        yield where, f"must be a mapping, not {value!r}", fact["line"]
        return
    if check := fact.get("check"):
        yield from ((where, why, fact["line"]) for name in _listed(check) if (why := check_error(name, value)))
    for key, each in value.items():
        if each is not None and not isinstance(each, Unknown):
            yield from _scalar({"line": fact["line"]}, element, f"{where}.{key}", each)


def _count(fact: Fact, where: str, count: int) -> Iterator[SchemaError]:
    minimum, maximum = fact.get("min_items", 0), fact.get("max_items")
    if count < minimum or (maximum is not None and count > maximum):
        allowed = f"{minimum} to {maximum}" if maximum is not None else f"at least {minimum}"
        yield where, f"must have a length of {allowed}, not {count}", fact["line"]


def _scalar(fact: Fact, kind: str, where: str, value: Any) -> Iterator[SchemaError]:
    try:
        given = converted(kind, value)
    except ValueError:
        yield where, f"must be {DESCRIPTIONS[kind]}, not {value!r}", fact["line"]
        return
    if given == "" and fact.get("or_empty"):
        return
    yield from ((where, why, fact["line"]) for why in _value_errors(fact, given))


def _value_errors(fact: Fact, value: Any) -> Iterator[str]:
    if words := fact.get("words"):
        same = value in words or (fact.get("ignore_case") and str(value).lower() in (each.lower() for each in words))
        if not same:
            yield f"{value!r} must be one of {', '.join(str(each) or repr('') for each in words)}"
    if isinstance(value, int | float) and not fact.get("min", value) <= value <= fact.get("max", value):
        bounds = f"at least {fact['min']}" if "max" not in fact else f"at most {fact['max']}"
        if "min" in fact and "max" in fact:
            bounds = f"{fact['min']} to {fact['max']}"
        yield f"{value} must be {bounds}"
    if (length := fact.get("length")) and not length[0] <= len(value) <= length[1]:
        yield f"{value!r} must have {length[0]} to {length[1]} characters"
    for pattern in _listed(fact.get("pattern")):
        if not re.search(pattern, value):
            yield f"{value!r} must match {pattern}"
    if (pattern := fact.get("excluded_pattern")) and re.search(pattern, value):
        yield f"{value!r} must not match {pattern}"
    for check in _listed(fact.get("check")):
        if why := check_error(check, value):
            yield why


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _rule_errors(table: FactTable, inputs: Properties) -> Iterator[SchemaError]:
    yield from _schema_rules(table, inputs)
    for rule in table.rules:
        check = _RULES.get(rule["rule"])
        if check:
            yield from ((where, why, rule["line"]) for where, why in check(rule, inputs))


def _schema_rules(table: FactTable, inputs: Properties) -> Iterator[SchemaError]:
    done = set[tuple[str, ...]]()
    for path, fact in table.inputs.items():
        if not any(key in fact for key in RELATIONS) or not _has_parent(inputs, path):
            continue
        if is_set(inputs, path):
            yield from _companion_errors(path, fact, inputs)
        for key in ("exactly_one_of", "at_least_one_of"):
            paths = tuple(fact.get(key, ()))
            if paths and (key, *paths) not in done:
                done.add((key, *paths))
                yield from ((where, why, fact["line"]) for where, why in _one_of(key, paths, inputs))


def _companion_errors(path: str, fact: Fact, inputs: Properties) -> Iterator[SchemaError]:
    for other in fact.get("conflicts", ()):
        if path != other and is_set(inputs, other):
            yield path, f"cannot be set together with {other}", fact["line"]
    for other in fact.get("required_with", ()):
        if not is_set(inputs, other):
            yield path, f"needs {other}", fact["line"]


def _one_of(key: str, paths: tuple[str, ...], inputs: Properties) -> Iterator[tuple[str, str]]:
    present = [each for each in paths if is_set(inputs, each)]
    unknown = any(isinstance(value, Unknown) for each in paths for value in values_at(inputs, each))
    if not present and not unknown:
        yield paths[0], f"one of {', '.join(paths)} must be set"
    elif key == "exactly_one_of" and len(present) > 1:
        yield present[1], f"only one of {', '.join(paths)} can be set; {', '.join(present)} are set"


def _conflict(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    values = {each: values_at(inputs, each) for each in rule["inputs"]}
    present = [each for each, found in values.items() if (any(found) if rule.get("not_zero") else found)]
    if holds(rule.get("when", {}), inputs) and len(present) > 1:
        yield present[1], f"cannot be set together with {present[0]}"


def _excluded(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    for each in rule["inputs"]:
        if holds(rule["when"], inputs) and is_set(inputs, each):
            condition = " and ".join(f"{path} = {value}" for path, value in rule["when"].items())
            yield each, f"cannot be set with {condition}"


def _any_of(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    if holds(rule.get("when", {}), inputs) and not any(is_set(inputs, each) for each in rule["inputs"]):
        yield rule["inputs"][0], f"one of {', '.join(rule['inputs'])} must be set"


def _excludes_value(rule: Mapping[str, Any], inputs: Properties) -> Iterator[tuple[str, str]]:
    other = values_at(inputs, rule["value_of"])
    for each in values_at(inputs, rule["input"]):
        if each in other and not isinstance(each, Unknown):
            yield rule["input"], f"{each!r} must not be the value of {rule['value_of']}"


_RULES = {"conflicts": _conflict, "excluded": _excluded, "any_of": _any_of, "excludes_value": _excludes_value}
"""Kind of a hand-written rule -> its check. Other kinds apply only to changes, see `checking`."""


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


def is_set(inputs: Properties, path: str) -> bool:
    """Return True if the input has a value. An unknown value counts; an empty list does not."""
    return bool(values_at(inputs, path))


def _has_parent(inputs: Properties, path: str) -> bool:
    parent = path.rpartition(".")[0]
    return not parent or any(isinstance(each, dict) for each in values_at(inputs, parent))


def _matches(value: str, pattern: str, description: str) -> str:
    return "" if re.fullmatch(pattern, value) else f"{value!r} must be {description}"


def _pattern(pattern: str, description: str) -> Callable[[str], str]:
    """Return a check of a whole text against a pattern."""
    return partial(_matches, pattern=pattern, description=description)


def _rfc1035(value: str, low: int, high: int) -> str:
    description = f"{low} to {high} lower-case letters, digits and '-', with a letter first and no '-' last"
    return _matches(value, _LABEL % (low - 2, high - 2), description)


def _network(value: str, low: int = 0, high: int = 128) -> str:
    """Return an error unless the value is a network with a prefix from /low to /high. Allow host bits."""
    try:
        found = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return f"{value!r} must be a network such as 10.0.0.0/20"
    if "/" not in value:
        return f"{value!r} must have a prefix length, such as {value}/32"
    return "" if low <= found.prefixlen <= high else f"{value!r} must be a /{low} to a /{high}"


def _exact_network(value: str, low: int = 0, high: int = 128) -> str:
    if error := _network(value, low, high):
        return error
    whole = str(ipaddress.ip_network(value, strict=False))
    return "" if value == whole else f"{value!r} has host bits; write {whole}"


def _timestamp(value: str) -> str:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    valid = found is not None and found.tzinfo is not None and "T" in value
    return "" if valid else f"{value!r} must be an RFC 3339 time such as 2026-01-01T03:00:00Z"


def _member(value: str) -> str:
    if value.startswith("deleted"):
        return f"{value!r} is a deleted principal; name an existing one"
    named = ":" in value.strip(":") or re.search(
        "projectOwners|projectReaders|projectWriters|all(Authenticated)?Users", value
    )
    return "" if named else f"{value!r} must begin with a kind such as user: or serviceAccount:, or be allUsers"


def _labels(value: Mapping[str, Any]) -> str:
    bad = [key for key in value if not _BUCKET_LABEL.fullmatch(key)]
    return f"keys {bad} must be 1 to 63 lower-case letters, digits, '_' and '-'" if bad else ""


def _not_empty(value: Any) -> str:
    return "" if value else f"{value!r} must not be empty or zero"


def _json(value: str) -> str:
    try:
        json.loads(value)
    except ValueError:
        return "must be JSON"
    return ""


def _service_range(value: str) -> str:
    found = ipaddress.ip_network(value, strict=False)
    blocks = [ipaddress.ip_network(each) for each in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")]
    inside = any(found.network_address in each for each in blocks)
    return "" if inside else f"{value!r} must be in one of {', '.join(map(str, blocks))}"


def _policy(value: str) -> str:
    return _json(value) if value.strip().startswith("{") else f"{value!r} must be a JSON object"


def _service(value: str) -> str:
    valid = "." in value and value != "bigquery-json.googleapis.com"
    return "" if valid else f"{value!r} must be a service such as container.googleapis.com"


CHECKS: Mapping[str, Callable[..., str]] = {
    "ValidateGCEName": _pattern(
        f"({_LABEL % (0, 61)}?)?", "1 to 63 lower-case letters, digits and '-', with a letter first and no '-' last"
    ),
    "ValidateRFC1035Name": _rfc1035,
    "ValidateIpCidrRange": _network,
    "IsCIDRNetwork": _exact_network,
    "ValidateRFC3339Date": _timestamp,
    "validateIAMMember": _member,
    "labelKeyValidator": _labels,
    "ValidateRegexp(ServiceAccountLinkRegex)": _pattern(
        r"projects/[^/]+/serviceAccounts/[^/]+", "projects/PROJECT/serviceAccounts/EMAIL"
    ),
    "validateProjectServiceService": _service,
    "gkeClusterName": _pattern(
        r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?",
        "1 to 40 lower-case letters, digits and '-', with a letter first and no '-' last",
    ),
    # An empty string is valid.
    "ValidARN": _pattern(
        r"(arn:aws[a-z-]*:[^:]+:[^:]*:[^:]*:.+)?", "an ARN such as arn:aws:iam::123456789012:role/NAME"
    ),
    "NoZeroValues": _not_empty,
    "StringIsJSON": _json,
    "validateIPv4CIDRPrivateRange": _service_range,
    "ValidIPv4CIDRNetworkAddress": partial(_exact_network, high=32),
    "ValidCIDRNetworkAddress": _exact_network,
    "ValidLaunchTemplateID": _pattern(r"lt-[0-9a-z]+", "the id of a launch template such as lt-0123456789abcdef0"),
    "validClusterName": _pattern(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}", "1 to 100 letters, digits, '_' and '-'"),
    "validLogGroupName": _pattern(r"[./\-_#A-Za-z0-9]{1,512}", "1 to 512 letters, digits and ./-_#"),
    "ValidIAMPolicyJSON": _policy,
}
"""Name of a provider's check, or a whole call -> function that returns an error; empty for a valid value.

Names that begin with `gke` stand for anonymous functions of the provider. People write these names into the tables.
"""


def named_check(check: str) -> Callable[..., str] | None:
    """Return the function of a named check, with the arguments in its name; None for an unknown check."""
    if check in CHECKS:
        return CHECKS[check]
    match = _CALL.fullmatch(check)
    if match is None or match["name"] not in CHECKS:
        return None
    low, high = map(int, match["arguments"].split(","))
    return partial(CHECKS[match["name"]], low=low, high=high)


def check_error(check: str, value: Any) -> str:
    """Return the error of a named check; empty for a valid value or an unknown check."""
    found = named_check(check)
    return found(value) if found else ""
