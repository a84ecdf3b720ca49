"""Comparison of two recordings of the program: each resource is created, updated, replaced or deleted.

The tables of the providers' facts and the Kubernetes provider's own rules say which changes replace a resource. A
replaced resource has new outputs, so the resources that use them are updated or replaced too. Resources are replaced if
their provider moves to another region or cluster.

The Kubernetes provider's rules: https://github.com/pulumi/pulumi-kubernetes/blob/v4.25.0/provider/pkg/provider/diff.go;
a test asks that plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from commands.review.plan import PROVIDER_PREFIX, Action, Step, is_selected, value_at
from commands.review.recorded import Record, key_of
from simulation.cloud.checking import Changes, changes
from simulation.cloud.fact_table import fact_table
from simulation.cloud.values import UNKNOWN

IDENTITY = ("metadata.name", "metadata.namespace")

_SELECTOR = "spec.selector"
_CLAIM = [_SELECTOR, "spec.accessModes", "spec.storageClassName", "spec.volumeName"]
_JOB = [_SELECTOR, "spec.completions", "spec.parallelism", "spec.template"]
_VOLUME = ("csi", "fc", "hostPath", "iscsi", "local", "nfs")

FIXED_FIELDS: Mapping[tuple[str, str], list[str]] = {
    ("apps/v1", "DaemonSet"): [_SELECTOR],
    ("apps/v1", "Deployment"): [_SELECTOR],
    ("batch/v1", "Job"): _JOB,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): ["roleRef"],
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ["roleRef"],
    ("storage.k8s.io/v1", "StorageClass"): ["parameters", "provisioner"],
    ("v1", "ConfigMap"): ["binaryData", "data"],
    ("v1", "PersistentVolume"): [f"spec.{name}" for name in _VOLUME],
    ("v1", "PersistentVolumeClaim"): _CLAIM,
    ("v1", "ResourceQuota"): ["spec.scopes"],
    ("v1", "Secret"): ["type", "stringData", "data"],
    ("v1", "Service"): ["spec.clusterIP"],
}
"""API version and kind -> paths in addition to the name.

Data is included: pods that have read it would not see a change. Volume types that Kubernetes has removed are left out.
"""
CLOUDS = ("gcp:", "aws:")
PROVIDERS = "pulumi:providers:"
MIN_LENGTH = 5
"""Minimum characters of an output that is also searched inside other text."""
REGION = "region"
"""Input of a cloud's provider that applies to all its resources."""


@dataclass
class _Pair:
    """A resource in both recordings."""

    before: Record
    after: Record
    changes: Changes

    @property
    def deletes_first(self) -> bool:
        """True if the resource is deleted before its replacement is created."""
        return self.after.deletes_first or self.changes.deletes_first


def difference(before: Iterable[Record], after: Iterable[Record]) -> list[Step]:
    """Return one step for each resource, the deleted ones first."""
    old = {each.key: each for each in before}
    new = {each.key: each for each in after}
    pairs = {key: _pair(old[key], each) for key, each in new.items() if key in old}
    while found := {key: result for key, pair in pairs.items() if (result := _changes_by_others(pair, pairs))}:
        for key, result in found.items():
            pairs[key].changes = result
    deleted = [_step("delete", each) for key, each in old.items() if key not in new]
    there = [_step_of_pair(pairs[key]) if key in pairs else _step("create", each) for key, each in new.items()]
    return [*deleted, *there]


def _pair(before: Record, after: Record) -> _Pair:
    kept = replace(after, inputs=without_ignored(before.inputs, after.inputs, after.ignore_changes))
    found = _changes(kept, before.inputs, kept.inputs)
    if after.type.startswith(PROVIDERS) and REGION in found.changed:
        found = replace(found, replaced=(REGION,))
    return _Pair(before, kept, found)


def without_ignored(old: Mapping[str, Any], new: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return the new inputs with the old values at the paths of `ignore_changes`."""
    found = dict(new)
    for path in paths:
        head, _, rest = path.partition(".")
        if rest and isinstance(found.get(head), Mapping):
            found[head] = without_ignored(old.get(head) or {}, found[head], [rest])
        elif head in old:
            found[head] = old[head]
        else:
            found.pop(head, None)
    return found


def _changes(record: Record, before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """Return the changes of a resource. Applies Pulumi's option `replace_on_changes`."""
    if record.type.startswith(CLOUDS):
        found = changes(record.type, dict(before), dict(after))
    else:
        changed = tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))
        found = Changes(changed=changed, replaced=_fixed_fields(record.type, before, after))
    by_option = [path for path in found.paths or found.changed if is_selected(path, record.replace_on_changes)]
    return replace(found, replaced=tuple(by_option)) if by_option and not found.replaced else found


def _fixed_fields(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a Kubernetes object that differ and cannot be changed in place."""
    if not kind.startswith("kubernetes:"):
        return ()
    paths = (*IDENTITY, *FIXED_FIELDS.get((str(after.get("apiVersion")), str(after.get("kind"))), ()))
    return tuple(path for path in paths if value_at(before, path) != value_at(after, path))


def _changes_by_others(pair: _Pair, pairs: Mapping[str, _Pair]) -> Changes | None:
    """Return the changes that other resources' new outputs cause; None if they cause no more."""
    if pair.changes.replaced:
        return None
    others = [pairs[key] for urn in _dependencies(pair.after) if (key := key_of(urn)) in pairs]
    provider = pairs.get(key_of(pair.after.provider)) if pair.after.provider else None
    if provider and provider.changes.replaced:
        reason = f"{PROVIDER_PREFIX}{key_of(pair.after.provider).rpartition('::')[2]}"
        return replace(pair.changes, replaced=(reason,))
    if not any(each.changes.changed or each.changes.replaced for each in others):
        return None
    found = _with_new_outputs(pair, pairs)
    return found if found != pair.changes else None


def _dependencies(record: Record) -> Iterator[str]:
    return (urn for urns in record.depends.values() for urn in urns)


def _with_new_outputs(pair: _Pair, pairs: Mapping[str, _Pair]) -> Changes:
    """Return the changes of a resource once the changed outputs of other resources are unknown."""
    before, after = pair.before.inputs, dict(pair.after.inputs)
    unknown_outputs, unknown_inputs = dict(after), dict(after)
    for name, urns in pair.after.depends.items():
        for other in (pairs[key] for urn in urns if (key := key_of(urn)) in pairs):
            if other.changes.replaced:
                unknown_outputs[name] = with_unknown_outputs(unknown_outputs.get(name), other.after.outputs)
                if other.deletes_first:
                    unknown_inputs[name] = UNKNOWN
            elif other.changes.changed:
                unknown_outputs[name] = _with_updated_outputs(unknown_outputs.get(name), other)
    if pair.after.type.startswith(PROVIDERS):
        changed = (name for name in after if not unknown_outputs[name] == after[name] == unknown_inputs[name])
        return replace(pair.changes, replaced=tuple(changed))
    found = _changes(pair.after, before, unknown_outputs)
    if pair.after.type.startswith("kubernetes:"):
        heads = tuple(dict.fromkeys(path.partition(".")[0] for path in found.replaced))
        found = replace(found, replaced=tuple(name for name in heads if name in pair.after.depends) or found.replaced)
    # To find the resources that are deleted with one that is deleted first, the engine diffs with whole inputs unknown:
    # calculateDependentReplacements in https://github.com/pulumi/pulumi/blob/v3.272.0/pkg/resource/deploy
    dependent = _changes(pair.after, before, unknown_inputs) if unknown_inputs != after else Changes()
    return replace(found, replaced=found.replaced or dependent.replaced, crash=found.crash or dependent.crash)


def _with_updated_outputs(value: Any, other: _Pair) -> Any:
    """Return an input in which the outputs that the other resource's update computes again are unknown."""
    table = fact_table(other.after.type)
    for rule in table.rules_of("new_output") if table else ():
        if {*other.changes.changed} - {*rule["unless"]}:
            output = rule["output"]
            value = with_unknown_outputs(value, {output: other.after.outputs.get(output)}, whole=False)
    return value


def _step_of_pair(pair: _Pair) -> Step:
    found = pair.changes
    if found.replaced:
        return replace(_step("replace", pair.after, pair.before, found.replaced), crash=found.crash)
    step = _step("update" if found.changed else "same", pair.after, pair.before, found.changed)
    return replace(step, recycles=found.recycles, crash=found.crash)


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


def with_unknown_outputs(value: Any, outputs: Mapping[str, Any], *, whole: bool = True) -> Any:
    """Return an input in which the parts made of outputs are unknown.

    If no part shows an output, the output was transformed: the whole input is unknown, unless `whole` is False.
    """
    texts = {str(each) for each in _leaves(dict(outputs)) if each not in (None, "")}
    found = _replaced(value, texts)
    return UNKNOWN if whole and found == value else found


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def _replaced(value: Any, texts: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, texts) for each in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    inside = any(each in text for each in texts if len(each) >= MIN_LENGTH)
    return UNKNOWN if text in texts or inside else value
