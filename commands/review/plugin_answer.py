"""An official plugin's plan of one resource: the paths that change, and those that replace it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from commands.review.plan import Action

REPLACES = ("ADD_REPLACE", "DELETE_REPLACE", "UPDATE_REPLACE")
_KEYS = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<index>\d+)\]|(?P<key>[^.\[\]]+)')


@dataclass(frozen=True)
class PlannedChange:
    """A path that a plugin plans to change."""

    path: str
    """Path below the resource; empty if the plugin names none."""
    replaces: bool
    """True if the change replaces the resource."""


def planned_changes(
    found: Any, unchanged: Any, olds: Mapping[str, Any], news: Mapping[str, Any]
) -> list[PlannedChange]:
    """Return the changes in an answer that the change of inputs causes.

    `unchanged` is the answer for the old inputs. The state comes from a preview and lacks values that the cloud
    computes, so a plugin plans to compute them again. Drop such a change unless the inputs at its path differ.
    """
    computed = set(_changes(unchanged))
    return [
        each
        for each in _changes(found)
        if each not in computed or value_at(olds, each.path) != value_at(news, each.path)
    ]


def action_of(changes: Iterable[PlannedChange], replace_on_changes: Iterable[str]) -> tuple[Action, list[str]]:
    """Return the action that the changes imply and the paths that cause it. Applies Pulumi's option
    `replace_on_changes`.
    """
    every = list(changes)
    options = list(replace_on_changes)
    replaced = [each.path for each in every if each.replaces or any(_is_asked(each.path, name) for name in options)]
    if replaced:
        return "replace", replaced
    return ("update", [each.path for each in every if each.path]) if every else ("same", [])


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path such as `nodeConfig.guestAccelerators[0].type`; None if there is none."""
    for match in _KEYS.finditer(path):
        index = match["index"]
        if index is not None:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            key = match["key"] if match["quoted"] is None else match["quoted"]
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _changes(found: Any) -> list[PlannedChange]:
    """Return every path of an answer once: the detailed ones, then those that only the summary has."""
    kinds = {path: each.Kind.Name(each.kind) for path, each in found.detailedDiff.items()}
    changes = [PlannedChange(path, kind in REPLACES) for path, kind in sorted(kinds.items())]
    for path in found.replaces:
        if not any(each.replaces and is_within(each.path, path) for each in changes):
            changes.append(PlannedChange(path, replaces=True))
    for path in found.diffs:
        if not any(is_within(each.path, path) for each in changes):
            changes.append(PlannedChange(path, replaces=False))
    if found.changes == found.DIFF_SOME and not changes:
        changes.append(PlannedChange("", replaces=False))
    return changes


def _is_asked(path: str, option: str) -> bool:
    return option == "*" or is_within(path, option)


def is_within(path: str, outer: str) -> bool:
    """Return True if a path equals the outer path or is below it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))
