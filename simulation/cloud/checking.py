"""Check and Diff of a resource's inputs: defaults, invalid inputs, updates in place and replacements."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from settings.problem import Problem
from simulation.cloud import fact_check, schema
from simulation.cloud.fact_diff import input_changes
from simulation.cloud.fact_table import fact_table, parts
from simulation.cloud.kinds import kind_of
from simulation.cloud.state import Properties
from simulation.cloud.values import Unknown

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
    """Return the inputs with the provider's defaults: name, those of `scope`, location and `tags`.

    `scope` has the provider's project, region and zone.
    """
    kind = kind_of(token)
    inputs = {key: value for key, value in news.items() if value is not None}
    defaults = []
    known = schema.property_names(token)
    if token.startswith("aws:") and "region" in known and "region" not in inputs and scope.get("region"):
        inputs["region"] = scope["region"]
        defaults.append("region")
    if token.startswith("gcp:"):
        for key in SCOPE_KEYS:
            if key in known and key not in inputs and scope.get(key):
                inputs[key] = scope[key]
                defaults.append(key)
        if "location" in known and "location" not in inputs and (location := scope.get("zone") or scope.get("region")):
            inputs["location"] = location
            defaults.append("location")
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
    """Return the inputs that the provider's schema rejects. Raises schema.UnknownType."""
    table = fact_table(token)
    return fact_check.problems(table, inputs) if table else schema.problems(token, inputs)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """A provider's Diff of a resource."""

    changed: tuple[str, ...] = ()
    """Top-level inputs that differ."""
    replaced: tuple[str, ...] = ()
    """Paths of the inputs whose change replaces the resource."""
    deletes_first: bool = False
    """True if the old resource must be deleted before the new one is created."""
    recycles: str = ""
    """Reason why an update recreates every node of a pool; empty if it does not."""
    crash: str = ""
    """Reason why the provider crashes on this plan; empty if it does not."""
    paths: tuple[str, ...] = ()
    """Paths that differ, without indices; empty if the rehearsal knows only the keys in `changed`."""


def changes(token: str, olds: Properties, news: Properties) -> Changes:
    """Return the changes between the old and the new inputs of a resource."""
    table = fact_table(token)
    if table is None:
        keys = [key for key in sorted({*olds, *news}) if not key.startswith("__")]
        return Changes(changed=tuple(key for key in keys if not _same(olds.get(key), news.get(key))))
    found = input_changes(table, olds, news)
    paths = {each.path for each in found}
    replaced = tuple(sorted({each.path for each in found if each.replaces}))
    kind = kind_of(token)
    name = kind.autoname.property if kind.autoname else ""
    keeps_name = bool(name) and name not in (news.get(DEFAULTS_KEY) or []) and _same(olds.get(name), news.get(name))
    recycling = [each for each in table.rules_of("recycles") if not paths.isdisjoint(each["inputs"])]
    unknown = [each for each in table.rules_of("crashes_on_unknown") if isinstance(news.get(each["input"]), Unknown)]
    return Changes(
        changed=tuple(sorted({each.path.partition(".")[0] for each in found})),
        replaced=replaced,
        deletes_first=bool(replaced) and (keeps_name or table.deletes_first),
        recycles=recycling[0]["reason"] if recycling and not replaced else "",
        crash=f"{unknown[0]['reason']}, {table.source(unknown[0]['line'])}" if unknown else "",
        paths=tuple(sorted(paths)),
    )


def path_outside_lists(token: str, path: str) -> str:
    """Return the part of a path before the first list, set or map element, because the table has no indices."""
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
