"""Check and Diff of a simulated provider: the defaults and problems of inputs, and the effects of their changes."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from settings.problem import Problem
from simulation.cloud import fact_check, schema
from simulation.cloud.aws import KINDS as AWS
from simulation.cloud.fact_table import FactTable, converted, fact_table, parts
from simulation.cloud.gcp import KINDS as GCP
from simulation.cloud.model import Autoname, Kind, Properties, without_internal
from simulation.cloud.values import Unknown


def _input_digest(found: Properties) -> str:
    """Return a digest of the inputs, in place of the digest of a built image."""
    text = json.dumps(without_internal(found), sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _image_reference(found: Properties) -> str:
    """Return the image reference: the first tag and the digest."""
    return f"{(found.get('tags') or ['image'])[0]}@{_input_digest(found)}"


IMAGE = Kind(
    type="docker-build:index:Image",
    id="{number}",
    outputs={"digest": _input_digest, "ref": _image_reference, "contextHash": _input_digest},
    seconds=300,
    delete_seconds=1,
)
"""Kind of an image. The simulation neither builds nor pushes it."""
KINDS: Mapping[str, Kind] = {**GCP, **AWS, IMAGE.type: IMAGE}
"""Type token -> kind of resource."""


def kind_of(token: str) -> Kind:
    """Return the kind of a type token; a default kind for an unknown type."""
    return KINDS.get(token) or Kind(
        type=token, id=f"{token.rpartition(':')[2].lower()}/{{number}}", autoname=Autoname()
    )


DEFAULTS_KEY = "__defaults"
"""Name of the input that lists the defaults filled in by the provider."""
SCOPE_KEYS = ("project", "region", "zone")
"""Settings of a provider that are defaults of its resources' inputs."""


def with_defaults(
    token: str,
    urn: str,
    seed: bytes,
    olds: Properties,
    news: Properties,
    scope: Properties,
    tags: Properties | None = None,
) -> Properties:
    """Return the inputs with the provider's defaults: name, project, region, zone, location and `tags`.

    `scope` has the provider's project, region and zone.
    """
    kind = kind_of(token)
    inputs = {key: value for key, value in news.items() if value is not None}
    defaults = []
    known = schema.property_names(token)
    for key, value in {**scope, "location": scope.get("zone") or scope.get("region")}.items():
        if key in known and key not in inputs and value:
            inputs[key] = value
            defaults.append(key)
    if tags and "tags" in known:
        inputs["tags"] = {**tags, **(inputs.get("tags") or {})}
    if (autoname := kind.autoname) and (name := autoname.property) in known and name not in inputs:
        old = olds.get(name) if name in (olds.get(DEFAULTS_KEY) or []) else None
        suffix = "-" + hashlib.sha256(seed + urn.encode()).hexdigest()[:7]
        inputs[name] = old or urn.rpartition("::")[2][: autoname.limit - len(suffix)] + suffix
        defaults.append(name)
    if defaults:
        inputs[DEFAULTS_KEY] = sorted(defaults)
    return inputs


def problems(token: str, inputs: Properties) -> list[Problem]:
    """Return a problem for each input that the provider's schema or rules reject. Raises schema.UnknownType."""
    table = fact_table(token)
    return fact_check.problems(table, inputs) if table else schema.problems(token, inputs)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes of a resource, as the provider reports them in Diff."""

    changed: tuple[str, ...] = ()
    """Top-level inputs that differ."""
    replaced: tuple[str, ...] = ()
    """Paths of the inputs whose change replaces the resource."""
    deletes_first: bool = False
    """True if the engine must delete the old resource before it creates the new one."""
    recycles: str = ""
    """Reason why an update recycles or removes nodes of a pool; empty if it does not."""
    crash: str = ""
    """Reason why the provider crashes on this change; empty if it does not."""
    paths: tuple[str, ...] = ()
    """Paths that differ, without indices; empty for a type without a fact table."""


def changes(token: str, olds: Properties, news: Properties) -> Changes:
    """Return the changes between the old and the new inputs of a resource."""
    table = fact_table(token)
    if table is None:
        keys = sorted(without_internal({**olds, **news}))
        return Changes(changed=tuple(key for key in keys if not _same(olds.get(key), news.get(key))))
    found = set(_Diff(table).block("", without_internal(olds), without_internal(news)))
    paths = {path for path, _ in found}
    replaced = tuple(sorted(path for path, replaces in found if replaces))
    kind = kind_of(token)
    name = kind.autoname.property if kind.autoname else ""
    keeps_name = bool(name) and name not in (news.get(DEFAULTS_KEY) or []) and _same(olds.get(name), news.get(name))
    recycling = [each for each in table.rules_of("recycles") if _recycles(each, paths, olds, news)]
    unknown = [each for each in table.rules_of("crashes_on_unknown") if isinstance(news.get(each["input"]), Unknown)]
    return Changes(
        changed=tuple(sorted({path.partition(".")[0] for path in paths})),
        replaced=replaced,
        deletes_first=bool(replaced) and (keeps_name or table.delete_before_replace),
        recycles=recycling[0]["reason"] if recycling and not replaced else "",
        crash=f"{unknown[0]['reason']}, {table.source(unknown[0]['line'])}" if unknown else "",
        paths=tuple(sorted(paths)),
    )


def _recycles(rule: Mapping[str, Any], paths: set[str], olds: Properties, news: Properties) -> bool:
    """Return True if a rule says that changes of the inputs `paths` recycle or remove nodes.

    A rule with `input` applies if that list loses an element, or changes together with one of `inputs`.
    """
    has_changed = not paths.isdisjoint(rule["inputs"])
    if "input" not in rule:
        return has_changed
    old, new = (each.get(rule["input"]) or [] for each in (olds, news))
    has_all = isinstance(old, list) and isinstance(new, list) and all(each in new for each in old)
    return rule["input"] in paths and (has_changed or not has_all)


def path_outside_lists(token: str, path: str) -> str:
    """Return a path up to its first list, set or map, because paths in the fact table have no indices."""
    table = fact_table(token)
    found: list[str] = []
    for key in path.split("."):
        found.append(key)
        fact = table.inputs.get(".".join(found)) if table else None
        if fact is None or parts(fact["type"])[0]:
            break
    return ".".join(found)


def counted_outputs(token: str) -> list[str]:
    """Return the outputs that count the updates of a resource of this type."""
    table = fact_table(token)
    return [each["output"] for each in table.rules_of("new_output")] if table else []


def new_outputs(token: str, olds: Properties, news: Properties) -> list[str]:
    """Return the outputs that an update computes again, such as the latest version of a launch template."""
    table = fact_table(token)
    if table is None:
        return []
    changed = set(changes(token, olds, news).changed)
    return [each["output"] for each in table.rules_of("new_output") if changed - {*each["unless"]}]


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        return False
    if isinstance(first, dict) and isinstance(second, dict):
        return all(_same(first.get(key), second.get(key)) for key in {*first, *second} if key != DEFAULTS_KEY)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


_InputChange = tuple[str, bool]
"""Path of an input that differs, without indices, and True if the change replaces the resource."""


class _Diff:
    """Comparison of old and new inputs. Like the provider, it ignores some differences.

    It ignores the removal of values that the cloud computes, and differences that the provider suppresses.
    """

    def __init__(self, table: FactTable) -> None:
        self._inputs = table.inputs
        self._removal_replaces = {each["input"] for each in table.rules_of("removal_replaces")}

    def block(self, prefix: str, old: Properties, new: Properties) -> Iterator[_InputChange]:
        """Compare the inputs of a block."""
        for key in sorted({*old, *new}):
            yield from self._input(prefix + key, old.get(key), new.get(key))

    def _input(self, path: str, old: Any, new: Any) -> Iterator[_InputChange]:
        fact = self._inputs.get(path, {"type": "?"})
        collection, element = parts(fact["type"])
        if fact["type"] == "?":
            if old != new or isinstance(new, Unknown):
                yield self._change(path)
        elif isinstance(new, Unknown) or isinstance(old, Unknown):
            yield self._change(path)
        elif _is_empty(new) and (fact.get("computed") or fact.get("suppress") == MISSING_BLOCK):
            if not _is_empty(old) and path in self._removal_replaces:
                yield path, True
        elif fact["type"] == "block":
            yield from self._one_block(path, old, new)
        elif element == "block":
            yield from self._blocks(path, collection, old or [], new or [])
        elif collection:
            if not _same_elements(collection, element, old, new):
                yield self._change(path)
        else:
            yield from self._scalar(path, fact, old, new)

    def _one_block(self, path: str, old: Any, new: Any) -> Iterator[_InputChange]:
        if new is None and old is not None and path in self._removal_replaces:
            yield path, True
        elif (old is None) != (new is None):
            yield self._change(path)
        yield from self.block(f"{path}.", old or {}, new or {})

    def _blocks(self, path: str, collection: str, old: list[Any], new: list[Any]) -> Iterator[_InputChange]:
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

    def _scalar(self, path: str, fact: Mapping[str, Any], old: Any, new: Any) -> Iterator[_InputChange]:
        before, after = (_stored_value(fact, each) for each in (old, new))
        if before == after or is_suppressed(fact.get("suppress"), before, after):
            return
        condition = fact.get("replace_if")
        yield path, CONDITIONS[condition](before, after) if condition else bool(fact.get("force_new"))

    def _change(self, path: str) -> _InputChange:
        return path, bool(self._inputs.get(path, {}).get("force_new"))


def _is_empty(value: Any) -> bool:
    return value is None or value in ([], {})


def _stored_value(fact: Mapping[str, Any], value: Any) -> Any:
    """Return a scalar as the provider stores it. The default, or zero without a default, replaces a missing value."""
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
    """Return True if two links differ only in host and API version. A plain name matches a link that ends with it."""
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

Of the other names, only EmptyOrDefaultStringSuppress and MISSING_BLOCK are simulated.
"""
MISSING_BLOCK = "SuppressMissingOptionalConfigurationBlock"
"""Name of a provider's function that ignores the removal of a block."""


def is_suppressed(name: str | None, old: Any, new: Any) -> bool:
    """Return True if the provider ignores the difference between two values."""
    if name is None:
        return False
    if match := _DEFAULT.fullmatch(name):
        return {old, new} <= {"", match["word"]}
    return name in SUPPRESSIONS and SUPPRESSIONS[name](old, new)


def _shrinks(old: Any, new: Any) -> bool:
    """Return True if the new range does not contain the old range. Without a replacement, a range can only grow."""
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
