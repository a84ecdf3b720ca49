"""Diff: what an update would change, and whether the object must be replaced for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pulumi.runtime.proto import provider_pb2

from setup.stand_ins.kubernetes.annotations import AUTONAMED, REPLACE_UNREADY, is_true
from setup.stand_ins.kubernetes.api import ApiError, Unreachable
from setup.stand_ins.kubernetes.awaiting.job import is_complete
from setup.stand_ins.kubernetes.diff import detailed_diff, is_ignored, merge_patch
from setup.stand_ins.kubernetes.discovery import NoSuchKind
from setup.stand_ins.kubernetes.force_new import IDENTITY, force_new_fields
from setup.stand_ins.kubernetes.naming import is_named
from setup.stand_ins.kubernetes.normalize import normalize
from setup.stand_ins.kubernetes.objects import (
    Object,
    is_patch_resource,
    kind_of,
    metadata_of,
    name_of,
    namespace_of,
    prune,
    set_metadata,
)
from setup.stand_ins.kubernetes.session import Session
from setup.stand_ins.kubernetes.state import parse, to_manifest

Kind = provider_pb2.PropertyDiff
REPLACING = frozenset({Kind.ADD_REPLACE, Kind.DELETE_REPLACE, Kind.UPDATE_REPLACE})


@dataclass
class Plan:
    """The differences by property path, and those of them that replace."""

    differences: dict[str, provider_pb2.PropertyDiff] = field(default_factory=dict)
    replaces: list[str] = field(default_factory=list)
    delete_first: bool = False
    """The new object has the old one's name, so the old one must go first."""


def plan(session: Session, urn: str, olds: Object, news: Object, ignore_changes: Sequence[str]) -> Plan:
    """Compare the live object, as far as the old inputs spoke of it, with the new inputs."""
    old_inputs, old_live = parse(olds)
    old_inputs, inputs = normalize(old_inputs), normalize(to_manifest(news))
    live = prune(old_live, old_inputs)
    live["metadata"] = dict(metadata_of(live))
    inputs["metadata"] = (
        dict(metadata_of(inputs)) if isinstance(inputs.get("metadata"), dict) else inputs.get("metadata")
    )
    namespaced = session.discovery.is_namespaced(kind_of(inputs))
    for manifest in (live, inputs):
        if isinstance(manifest.get("metadata"), dict):
            current = metadata_of(manifest).get("namespace")
            if not namespaced or not current:
                set_metadata(manifest, "namespace", "default" if namespaced else "")
    for key in ("apiVersion", "kind"):
        live.setdefault(key, inputs.get(key))
    live["metadata"].pop("resourceVersion", None)
    if name_of(inputs):
        set_metadata(live, "name", name_of(old_live))

    result = Plan()
    if patch := merge_patch(live, inputs):
        force_new: Sequence[str] = IDENTITY
        if not is_patch_resource(urn, kind_of(inputs).kind):
            settings = session.settings
            force_new = force_new_fields(
                inputs, secrets_mutable=settings.secrets_mutable, config_maps_mutable=settings.config_maps_mutable
            )
        found = detailed_diff(patch, live, inputs, live, force_new)
        result.differences = {path: change for path, change in found.items() if not is_ignored(path, ignore_changes)}
        result.replaces = [
            path
            for path, change in result.differences.items()
            if change.kind in REPLACING or (change.kind == Kind.DELETE and path == "metadata")
        ]
    _replace_unready(session, urn, inputs, old_live, result)
    result.delete_first = bool(
        result.replaces
        and is_named(inputs)
        and not is_true(inputs, AUTONAMED)
        and name_of(inputs) == name_of(old_live)
        and namespace_of(inputs) == namespace_of(old_live)
    )
    return result


def _replace_unready(session: Session, urn: str, inputs: Object, old_live: Object, result: Plan) -> None:
    """`pulumi.com/replaceUnready` has a Job replaced that has not succeeded."""
    if not is_true(inputs, REPLACE_UNREADY):
        return
    if session.cluster is None:
        session.engine.warning(urn, "Cluster is unreachable, skipping replaceUnready check")
    elif inputs.get("kind") != "Job":
        session.engine.warning(urn, "replaceUnready annotation is not supported for this resource")
    else:
        try:
            live = session.cluster.get(old_live)
        except (ApiError, NoSuchKind, Unreachable):
            return
        if not is_complete(live):
            result.replaces.append(f'.metadata.annotations["{REPLACE_UNREADY}"]')
