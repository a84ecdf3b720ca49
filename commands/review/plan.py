"""Planned steps: from `pulumi preview --json`, or from the difference between two recordings of the program.

A recording has the resources that the program declares. In a difference, the tables in `simulation/cloud/facts` say
which changes replace a resource. A replaced resource has new outputs, so the resources that use them are updated or
replaced too. A resource is also replaced if its provider moves to another region or cluster.

Rules of the Kubernetes provider: https://github.com/pulumi/pulumi-kubernetes/blob/v4.25.0/provider/pkg/provider/diff.go
`tests/plugins/test_fixed_fields.py` compares `FIXED_FIELDS` with that plugin.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from commands.review.recorded import Record, key_of
from infra.naming import POOL_LABEL
from simulation.cloud.checking import Changes, changes
from simulation.cloud.fact_table import fact_table
from simulation.cloud.values import UNKNOWN

Action = Literal["replace", "delete", "create", "update", "same"]
ACTIONS: Mapping[str, Action] = {
    "create": "create",
    "update": "update",
    "delete": "delete",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "import": "create",
    "same": "same",
    "refresh": "same",
    "read": "same",
}
"""Pulumi's operation -> action. https://www.pulumi.com/docs/iac/cli/commands/pulumi_preview/"""
POOLS = (":NodePool", ":NodeGroup")
"""Suffixes of the types of pools."""
POOL_LABELS = (f'nodeConfig.labels["{POOL_LABEL}"]', f'labels["{POOL_LABEL}"]')
"""Paths of the label of a pool's nodes, on GKE and EKS."""
CLUSTERS = ("container/cluster:Cluster", "eks/cluster:Cluster")
"""Suffixes of the types of clusters."""
BUCKETS = ("storage/bucket:Bucket", "s3/bucket:Bucket")
"""Suffixes of the types of buckets."""
_KEYS = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<index>\d+)\]|(?P<key>[^.\[\]]+)')
"""Parts of a path such as `a.b[0]["c.d"]`."""
PROVIDER_PREFIX = "provider "
"""Prefix of a step's reason if only the resource's provider changes."""
IDENTITY = ("metadata.name", "metadata.namespace")
"""Paths whose change replaces any Kubernetes object."""
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
"""API version and kind -> paths whose change replaces the object, in addition to `IDENTITY`.

Changed data replace a ConfigMap or Secret, because pods that have read the data would not see the change. Paths of
volume types that Kubernetes has removed are missing.
"""
CLOUDS = ("gcp:", "aws:")
"""Prefixes of the types of cloud resources."""
PROVIDERS = "pulumi:providers:"
"""Prefix of the types of providers."""
MIN_OUTPUT_LENGTH = 5
"""Minimum length of an output that the comparison also finds inside a longer text."""
REGION = "region"
"""Input of a provider whose change replaces all resources of the provider."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Planned action for one resource."""

    action: Action
    type: str
    name: str
    """Its name in the program."""
    inputs: dict[str, Any]
    """Its new inputs; the old inputs if it is deleted."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Its inputs before the change; empty for a new resource."""
    changed: tuple[str, ...] = ()
    """Changed keys or paths that cause the action, or one reason that begins with PROVIDER_PREFIX."""
    kept: bool = False
    """True if it stays in the cloud when it is removed from the stack."""
    recycles: str = ""
    """Reason why an update recycles or removes nodes of a pool; empty if it does not."""
    crash: str = ""
    """Reason why the provider crashes on this change; empty if it does not."""

    @property
    def is_component(self) -> bool:
        """True for a component or a provider. These exist only in Pulumi's state."""
        return self.type.startswith(("trainyard:", "pulumi:"))

    @property
    def provider(self) -> str:
        """Provider whose change is the only reason for this step; empty for other reasons."""
        reason = self.changed[0] if len(self.changed) == 1 else ""
        return reason.removeprefix(PROVIDER_PREFIX) if reason.startswith(PROVIDER_PREFIX) else ""

    @property
    def kind(self) -> str:
        """Last part of its type."""
        return self.type.rpartition(":")[2]


def steps_of(preview: str) -> list[Step]:
    """Return a step for each resource in `pulumi preview --json --show-sames`.

    Raises ValueError for an unknown operation.
    """
    found: dict[str, Step] = {}
    for each in json.loads(preview[preview.index("{") :]).get("steps", []):
        operation, urn = each["op"], each["urn"]
        if operation not in ACTIONS:
            raise ValueError(f"operation {operation} of {urn}: Trainyard does not know it; update Trainyard")
        state = each.get("newState") or each.get("oldState") or {}
        kind = urn.split("::")[2].rpartition("$")[2]
        step = Step(
            action=ACTIONS[operation],
            type=kind,
            name=urn.split("::")[-1],
            inputs=state.get("inputs") or {},
            before=(each.get("oldState") or {}).get("inputs") or {},
            changed=tuple(each.get("replaceReasons") or each.get("diffReasons") or ()),
            kept=bool((each.get("oldState") or {}).get("retainOnDelete")),
        )
        if step.action == "update":
            step = replace(step, recycles=changes(kind, dict(step.before), step.inputs).recycles)
        # A replacement has several steps. Count it once, as a replacement.
        if urn not in found or step.action == "replace":
            found[urn] = step
    return [step for step in found.values() if step.type != "pulumi:pulumi:Stack"]


def by_kind(steps: Iterable[Step]) -> Mapping[Action, Mapping[str, int]]:
    """Return action -> kind -> number of resources, the destructive actions first. Leave out components."""
    counts: dict[Action, Counter[str]] = {}
    for step in (each for each in steps if not each.is_component):
        counts.setdefault(step.action, Counter())[step.kind] += 1
    return {action: counts[action] for action in ("replace", "delete", "create", "update", "same") if action in counts}


def name_in_cloud(step: Step) -> str:
    """Return the name by which users know a pool or a bucket."""
    for key in ("nodeGroupName", "name", "bucket"):
        if isinstance(step.inputs.get(key), str):
            return str(step.inputs[key])
    return step.name


def pool_in_settings(step: Step) -> str:
    """Return the name of a pool in the settings, from its nodes' label. Without a label, return its name in the cloud.

    A pool with several slices, capacities or zones needs several node pools in GKE, each with another name.
    """
    inputs = step.before or step.inputs
    return next((str(label) for path in POOL_LABELS if (label := value_at(inputs, path))), name_in_cloud(step))


def forbidden(steps: Iterable[Step], running: Mapping[str, Iterable[str]], may_replace: Iterable[str]) -> list[str]:
    """Return the reasons to reject the plan. `running` maps a pool's name in the settings to the jobs that run there.

    The plan must not delete or replace a bucket, or delete, replace or recycle a pool with running jobs. `may_replace`
    names exceptions. The plan must not delete or replace a cluster with deletion protection: Pulumi would delete the
    nodes and jobs before the cloud rejects the deletion of the cluster.
    """
    allowed, found = set(may_replace), []
    for step in steps:
        verb = "recycle the nodes of" if step.recycles else step.action
        if verb in ("create", "update", "same") or step.kept:
            continue
        name = name_in_cloud(step)
        if step.type.endswith(CLUSTERS) and (step.before or step.inputs).get("deletionProtection") is True:
            remedy = "undo the change, or first run an update that changes only `deletion_protection` to `false`"
            found.append(f"would {step.action} cluster {name}, which has `deletion_protection`; {remedy}")
        if {name, step.name} & allowed:
            continue
        remedy = f"write `policy: {{may_replace: [{name}]}}` in the stack to allow this"
        jobs = sorted(running.get(pool_in_settings(step), ()))
        if step.type.endswith(POOLS) and jobs:
            found.append(f"would {verb} pool {name}, which runs {', '.join(jobs)}; {remedy}")
        elif step.type.endswith(BUCKETS):
            found.append(f"would {step.action} bucket {name} with its checkpoints; {remedy}")
    return found


def value_at(value: Any, path: str, default: Any = None) -> Any:
    """Return the value at a path such as `nodeConfig.guestAccelerators[0].type`, or the default."""
    for match in _KEYS.finditer(path):
        index, key = match["index"], match["key"] if match["quoted"] is None else match["quoted"]
        if index is not None and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif index is None and isinstance(value, Mapping) and key in value:
            value = value[key]
        else:
            return default
    return value


def is_within(path: str, outer: str) -> bool:
    """Return True if a path equals the outer path or is below it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def is_selected(path: str, options: Iterable[str]) -> bool:
    """Return True if Pulumi's option `replace_on_changes` with the paths `options` selects `path`."""
    return any(option == "*" or is_within(path, option) for option in options)


@dataclass
class _Pair:
    """Resource in both recordings."""

    before: Record
    after: Record
    changes: Changes

    @property
    def deletes_first(self) -> bool:
        """True if the resource is deleted before its replacement is created."""
        return self.after.deletes_first or self.changes.deletes_first


def difference(before: Iterable[Record], after: Iterable[Record]) -> list[Step]:
    """Return one step for each resource in two recordings, the deleted ones first."""
    old = {each.key: each for each in before}
    new = {each.key: each for each in after}
    pairs = {key: _pair(old[key], each) for key, each in new.items() if key in old}
    # Repeat until no new output changes another resource.
    while found := {key: result for key, pair in pairs.items() if (result := _changes_by_others(pair, pairs))}:
        for key, result in found.items():
            pairs[key].changes = result
    deleted = [_step("delete", each) for key, each in old.items() if key not in new]
    remaining = [_step_of_pair(pairs[key]) if key in pairs else _step("create", each) for key, each in new.items()]
    return [*deleted, *remaining]


def _pair(before: Record, after: Record) -> _Pair:
    """Return the pair with the changes of the resource's own inputs. Skip the paths of `ignore_changes`."""
    kept = replace(after, inputs=without_ignored(before.inputs, after.inputs, after.ignore_changes))
    found = _changes(kept, before.inputs, kept.inputs)
    if after.type.startswith(PROVIDERS) and REGION in found.changed:
        found = replace(found, replaced=(REGION,))
    return _Pair(before, kept, found)


def without_ignored(old: Mapping[str, Any], new: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return the new inputs, but with the old values at the paths of `ignore_changes`."""
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
    """Return the changes of a resource. Apply Pulumi's option `replace_on_changes`."""
    if record.type.startswith(CLOUDS):
        found = changes(record.type, dict(before), dict(after))
    else:
        changed = tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))
        is_object = record.type.startswith("kubernetes:")
        paths = (*IDENTITY, *FIXED_FIELDS.get((str(after.get("apiVersion")), str(after.get("kind"))), ()))
        replaced = (path for path in paths if is_object and value_at(before, path) != value_at(after, path))
        found = Changes(changed=changed, replaced=tuple(replaced))
    by_option = [path for path in found.paths or found.changed if is_selected(path, record.replace_on_changes)]
    return replace(found, replaced=tuple(by_option)) if by_option and not found.replaced else found


def _changes_by_others(pair: _Pair, pairs: Mapping[str, _Pair]) -> Changes | None:
    """Return the changes plus those that new outputs of other resources cause. Return None if there are no others."""
    if pair.changes.replaced:
        return None
    dependencies = (urn for urns in pair.after.depends.values() for urn in urns)
    others = [pairs[key] for urn in dependencies if (key := key_of(urn)) in pairs]
    provider = pairs.get(key_of(pair.after.provider)) if pair.after.provider else None
    if provider and provider.changes.replaced:
        reason = f"{PROVIDER_PREFIX}{key_of(pair.after.provider).rpartition('::')[2]}"
        return replace(pair.changes, replaced=(reason,))
    if not any(each.changes.changed or each.changes.replaced for each in others):
        return None
    found = _with_new_outputs(pair, pairs)
    return found if found != pair.changes else None


def _with_new_outputs(pair: _Pair, pairs: Mapping[str, _Pair]) -> Changes:
    """Return the changes of a resource if the changed outputs of other resources count as unknown."""
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
    # If another resource is deleted before its replacement, the engine diffs its dependents with whole inputs unknown:
    # calculateDependentReplacements in https://github.com/pulumi/pulumi/blob/v3.272.0/pkg/resource/deploy
    dependent = _changes(pair.after, before, unknown_inputs) if unknown_inputs != after else Changes()
    return replace(found, replaced=found.replaced or dependent.replaced, crash=found.crash or dependent.crash)


def _with_updated_outputs(value: Any, other: _Pair) -> Any:
    """Return an input with UNKNOWN in place of the outputs that the update of `other` computes again."""
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
        # The options in the state decide if the old resource stays, not the new options.
        kept=(before or record).kept,
    )


def with_unknown_outputs(value: Any, outputs: Mapping[str, Any], *, whole: bool = True) -> Any:
    """Replace `outputs` in an input with UNKNOWN. With `whole`, return UNKNOWN if the input does not contain them."""
    texts = {str(each) for each in _leaves(dict(outputs)) if each not in (None, "")}
    found = _with_unknown_texts(value, texts)
    return UNKNOWN if whole and found == value else found


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def _with_unknown_texts(value: Any, texts: set[str]) -> Any:
    """Return a value with UNKNOWN in place of numbers and texts that equal or contain one of `texts`."""
    if isinstance(value, Mapping):
        return {key: _with_unknown_texts(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_unknown_texts(each, texts) for each in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    inside = any(each in text for each in texts if len(each) >= MIN_OUTPUT_LENGTH)
    return UNKNOWN if text in texts or inside else value
