"""Who owns which field of a live object, and handing over what earlier client-side writes own."""

import copy
from collections.abc import Sequence
from typing import Any

from setup.stand_ins.kubernetes.objects import Object, metadata_of, pluck

FOREIGN_BUT_OURS = (
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    ("pulumi-kubernetes", "Update"),
    ("pulumi-resource-kubernetes", "Update"),
)
"""Managers, by the beginning of their names, whose fields go over to ours: creations and other client-side writes."""

CLIENT_SIDE = frozenset({"pulumi-resource-kubernetes", "pulumi-kubernetes", "pulumi-kubernetes.exe"})


def takeover(live: Object, manager: str) -> list[dict[str, Any]]:
    """The patch that makes `manager` the applier of what the managers above own; empty when they own nothing."""
    entries = metadata_of(live).get("managedFields") or []
    ours = next((entry for entry in entries if _is_ours(entry, manager)), None)
    kept, merged, changed = [], copy.deepcopy(ours), False
    for entry in entries:
        if _is_ours(entry, manager):
            continue
        if not _goes_over(entry):
            kept.append(entry)
        elif merged is None:
            merged, changed = {**copy.deepcopy(entry), "manager": manager, "operation": "Apply"}, True
        else:
            merged["fieldsV1"], changed = _union(merged.get("fieldsV1") or {}, entry.get("fieldsV1") or {}), True
    if not changed:
        return []
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": [*kept, merged]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]


def _is_ours(entry: Object, manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _goes_over(entry: Object) -> bool:
    if entry.get("subresource"):
        return False
    return any(
        str(entry.get("manager")).startswith(prefix) and entry.get("operation") == operation
        for prefix, operation in FOREIGN_BUT_OURS
    )


def _union(one: Object, other: Object) -> Object:
    return {key: _union(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}


def must_force(live: Object, *, preview: bool) -> bool:
    """Whether an update must overrule other managers though nobody asked for it.

    In a preview the takeover has not happened; and an object from before server-side apply names no managers.
    """
    entries = metadata_of(live).get("managedFields") or []
    if not entries:
        return True
    return preview and any(
        entry.get("operation") == "Update" and entry.get("manager") in CLIENT_SIDE for entry in entries
    )


def owned_by_others_only(live: Object, path: Sequence[str], manager: str) -> bool:
    """Whether a field has an owner and `manager` is not among them."""
    owners = {entry.get("manager") for entry in metadata_of(live).get("managedFields") or [] if _owns(entry, path)}
    return bool(owners) and manager not in owners


def _owns(entry: Object, path: Sequence[str]) -> bool:
    return pluck(entry.get("fieldsV1"), *(f"f:{key}" for key in path)) is not None
