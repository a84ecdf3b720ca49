"""What happens to each resource between two recordings of the program: made, changed, made again, removed.

Which changes make a resource again is what the simulated clouds and the Kubernetes provider's own rules say. What is
made again has other outputs: whatever is made of them and cannot change is made again, too, as are all resources of a
provider that talks to another region or to another cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from commands.review.plan import BY_PROVIDER, Action, Step
from commands.review.recording import Record, key_of
from rehearsal.cloud.checking import changes
from setup.stand_ins.kubernetes.force_new import force_new_fields
from setup.stand_ins.kubernetes.values import UNKNOWN

CLOUDS = ("gcp:", "aws:")
PROVIDERS = "pulumi:providers:"
PLACE = "region"
"""Input of a cloud's provider that each of its resources has from there."""


@dataclass
class _Pair:
    """A resource in both recordings."""

    before: Record
    after: Record
    changed: tuple[str, ...]
    """Inputs that differ."""
    replaced: tuple[str, ...]
    """Those of them that mean another resource."""


def difference(before: Iterable[Record], after: Iterable[Record]) -> list[Step]:
    """One step for each resource; those that go come first."""
    old = {each.key: each for each in before}
    new = {each.key: each for each in after}
    pairs = {key: _pair(old[key], each) for key, each in new.items() if key in old}
    while found := {key: reasons for key, pair in pairs.items() if (reasons := _drawn_along(pair, pairs))}:
        for key, reasons in found.items():
            pairs[key].replaced = reasons
    gone = [_step("delete", each) for key, each in old.items() if key not in new]
    there = [_there(pairs[key]) if key in pairs else _step("create", each) for key, each in new.items()]
    return [*gone, *there]


def _pair(before: Record, after: Record) -> _Pair:
    old, new = before.inputs, after.inputs
    changed = tuple(sorted(key for key in {*old, *new} if old.get(key) != new.get(key)))
    replaced = _replaced(after.type, old, new)
    if after.type.startswith(PROVIDERS) and PLACE in changed:
        replaced = (PLACE,)
    return _Pair(before, after, changed, replaced)


def _replaced(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Inputs that differ and mean another resource."""
    if kind.startswith(CLOUDS):
        return tuple(changes(kind, dict(before), dict(after))[1])
    if kind.startswith("kubernetes:"):
        fixed = force_new_fields(dict(after), secrets_mutable=False, config_maps_mutable=False)
        return tuple(path[1:] for path in fixed if _at(before, path) != _at(after, path))
    return ()


def _drawn_along(pair: _Pair, pairs: Mapping[str, _Pair]) -> tuple[str, ...]:
    """Why a resource that could stay is made again because of others; empty where it stays."""
    if pair.replaced:
        return ()

    def is_replaced(urn: str) -> bool:
        other = pairs.get(key_of(urn))
        return other is not None and bool(other.replaced)

    if pair.after.provider and is_replaced(pair.after.provider):
        return (f"{BY_PROVIDER}{key_of(pair.after.provider).rpartition('::')[2]}",)
    lost = [name for name, urns in pair.after.depends.items() if any(map(is_replaced, urns))]
    if pair.after.type.startswith(PROVIDERS):
        return tuple(lost)
    before, after = pair.before.inputs, pair.after.inputs
    return tuple(name for name in lost if _replaced(pair.after.type, before, {**after, name: UNKNOWN}))


def _there(pair: _Pair) -> Step:
    if pair.replaced:
        return _step("replace", pair.after, pair.before, pair.replaced)
    return _step("update" if pair.changed else "same", pair.after, pair.before, pair.changed)


def _step(action: Action, record: Record, before: Record | None = None, changed: tuple[str, ...] = ()) -> Step:
    return Step(
        action=action,
        type=record.type,
        name=record.name,
        inputs=record.inputs,
        before=before.inputs if before else {},
        changed=changed,
        kept=record.kept,
    )


def _at(found: Any, path: str) -> Any:
    for key in path.removeprefix(".").split("."):
        if key.endswith("[*]"):
            return found
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
