"""Plan: the steps of `pulumi preview --json`, and the steps that need explicit permission."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from simulation.cloud.checking import changes

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
BUCKETS = ("storage/bucket:Bucket", "s3/bucket:Bucket")
"""Suffixes of the types of buckets."""
_KEYS = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<index>\d+)\]|(?P<key>[^.\[\]]+)')
"""Parts of a path."""
PROVIDER_PREFIX = "provider "
"""Prefix of a reason that is a change of the resource's provider, not of the resource."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The planned action for one resource."""

    action: Action
    """Planned action."""
    type: str
    """Type of the resource."""
    name: str
    """Its name in the program."""
    inputs: dict[str, Any]
    """Its new inputs, or the old ones if it is deleted."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Its inputs until now; empty for a new resource."""
    changed: tuple[str, ...] = ()
    """Keys that differ."""
    kept: bool = False
    """True if it stays in the cloud when it is removed from the stack."""
    recycles: str = ""
    """Reason why an update recycles all nodes of a pool; empty if it does not."""
    crash: str = ""
    """Reason why the provider crashes on this change; empty if it does not."""

    @property
    def component(self) -> bool:
        """True for a component or provider of the program, which exists only in Pulumi."""
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
    """Return the steps in the output of `pulumi preview --json --show-sames`, one for each resource.

    Raises ValueError for an unknown operation.
    """
    found: dict[str, Step] = {}
    for each in json.loads(preview[preview.index("{") :]).get("steps", []):
        operation, urn = each["op"], each["urn"]
        if operation not in ACTIONS:
            raise ValueError(f"pulumi says that it would {operation} {urn}, which Trainyard does not know")
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
    """Return action -> kind -> number of resources, the destructive actions first. Leaves out components."""
    counts: dict[Action, Counter[str]] = {}
    for step in (each for each in steps if not each.component):
        counts.setdefault(step.action, Counter())[step.kind] += 1
    return {action: counts[action] for action in ("replace", "delete", "create", "update", "same") if action in counts}


def name_in_cloud(step: Step) -> str:
    """Return the name by which users know a pool or a bucket."""
    for key in ("nodeGroupName", "name", "bucket"):
        if isinstance(step.inputs.get(key), str):
            return str(step.inputs[key])
    return step.name


def forbidden(steps: Iterable[Step], running: Mapping[str, Iterable[str]], may_replace: Iterable[str]) -> list[str]:
    """Return the reasons to reject the plan: it would remove pools under running jobs, or buckets.

    `running` is pool -> jobs that run there now. Resources in `may_replace` are allowed.
    """
    allowed, found = set(may_replace), []
    for step in steps:
        does = "recycle the nodes of" if step.recycles else step.action
        if does in ("create", "update", "same") or step.kept:
            continue
        name = name_in_cloud(step)
        if {name, step.name} & allowed:
            continue
        remedy = f"write `policy: {{may_replace: [{name}]}}` in the stack if that is meant"
        jobs = sorted({*running.get(name, ()), *running.get(step.name, ())})
        if step.type.endswith(POOLS) and jobs:
            found.append(f"would {does} pool {name}, on which {', '.join(jobs)} runs; {remedy}")
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
    """Return True if one of the paths of Pulumi's option `replace_on_changes` selects a path."""
    return any(option == "*" or is_within(path, option) for option in options)
