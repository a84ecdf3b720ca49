"""What a rehearsal found, as plain text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from rehearsal.duration import in_words
from rehearsal.placement import Pod


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node that the stack would have."""

    name: str
    pool: str
    machine: str
    zone: str
    accelerators: dict[str, str]


@dataclass(kw_only=True)
class Report:
    """The whole rehearsal."""

    stack: str
    fault: str = ""
    problems: list[str] = field(default_factory=list)
    """Why the rehearsal failed, one line each; empty where it did not."""
    resources: dict[str, list[str]] = field(default_factory=dict)
    """Ids by type, of what the clouds had at the end of `up`."""
    up_failed: bool = False
    """Whether `up` came to no end: what needs a whole stack is not known then."""
    unchecked: dict[str, list[str]] = field(default_factory=dict)
    """Inputs, by type, that the provider checks in a way that the rehearsal does not know."""
    without_rules: list[str] = field(default_factory=list)
    """Types that were held to their SDK's classes alone."""
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    """Jobs that waited in their queue until others had come to their end."""
    quota: dict[str, int] = field(default_factory=dict)
    """Quota needed, by region and name."""
    cost: dict[str, float] = field(default_factory=dict)
    """US dollars an hour of each pool, of the system's nodes and of the cluster, each with the most nodes."""
    cost_total: str = ""
    """Their sum, with the band that the true price is thought to be in; empty where there was no price to be had."""
    unpriced: list[str] = field(default_factory=list)
    """What the price table has no price for, and so is not in the sum."""
    up_seconds: int = 0
    """Simulated: how long `up` would take in the clouds."""
    destroy_seconds: int = 0
    """The same of `destroy`."""
    written: dict[str, list[str]] = field(default_factory=dict)
    """What jobs have written, by bucket."""
    kept: list[str] = field(default_factory=list)
    """Buckets that outlive the stack because its settings say so."""
    left: list[str] = field(default_factory=list)
    """What was left after `destroy`."""
    receipt: dict[str, Any] = field(default_factory=dict)
    """What `make verify-empty` says of the clouds after `destroy`."""
    wall_seconds: float = 0.0
    """How long the rehearsal itself took."""

    @property
    def passed(self) -> bool:
        """Whether the stack can be brought up for money."""
        return not self.problems and not self.left

    def to_json(self) -> str:
        """Everything."""
        return json.dumps({**asdict(self), "passed": self.passed}, indent=1)

    def to_text(self) -> str:
        """For people."""
        lines = [f"Rehearsal of stack {self.stack}" + (f" with fault {self.fault}" if self.fault else "")]
        total = sum(map(len, self.resources.values()))
        begin = "Created until `pulumi up` failed" if self.up_failed else "Would be created"
        lines += ["", f"{begin}: {total} cloud resources"]
        lines += [f"  {len(ids):4}  {type_}" for type_, ids in sorted(self.resources.items())]
        if self.without_rules:
            lines.append(f"  held to the provider's types alone: {', '.join(self.without_rules)}")
        lines.append("")
        if not self.up_failed:
            lines += [*self._nodes(), "", *self._pods(), ""]
            lines += ["Quota needed:", *(f"  {amount:6}  {name}" for name, amount in sorted(self.quota.items())), ""]
        lines += self._cost()
        if not self.up_failed:
            lines.append(f"`pulumi up` would take about {in_words(self.up_seconds)}, and `pulumi destroy` about ")
            lines[-1] += in_words(self.destroy_seconds)
        if self.left:
            lines += ["Left after destroy:", *(f"  {each}" for each in self.left)]
        else:
            rest = (
                f" but the bucket that is kept on purpose, {', '.join(map(self._bucket, self.kept))}"
                if self.kept
                else ""
            )
            lines.append(f"After destroy nothing was left in the clouds and on this machine{rest}.")
        lines += ["", "A rehearsal cannot know:", *(f"  {each}" for each in self._unknown()), ""]
        lines += [f"problem: {each}" for each in self.problems]
        lines.append(f"The rehearsal {'passed' if self.passed else 'FAILED'} in {self.wall_seconds:.0f} s")
        return "\n".join(lines)

    def _unknown(self) -> list[str]:
        unchecked = [
            f"the provider's check of {', '.join(names)} of {type_}" for type_, names in self.unchecked.items()
        ]
        return [*UNKNOWN, *unchecked]

    def _bucket(self, name: str) -> str:
        return f"{name} ({len(self.written.get(name, ()))} checkpoints)"

    def _cost(self) -> list[str]:
        if not self.cost_total:
            return []
        more = " and what has no price" if self.unpriced else ""
        lines = [f"Costs {self.cost_total}{more} an hour with the most nodes:"]
        lines += [f"  {amount:10,.2f}  {part}" for part, amount in self.cost.items()]
        lines += [f"      no price  {each}" for each in self.unpriced]
        return [*lines, ""]

    def _nodes(self) -> list[str]:
        kinds = Counter((each.pool, each.machine, each.zone, _amounts(each.accelerators)) for each in self.nodes)
        rows = [
            f"  {count:4}  {pool}: {machine} in {zone}{amounts}"
            for (pool, machine, zone, amounts), count in kinds.items()
        ]
        return [f"Nodes: {len(self.nodes)}", *rows]

    def _pods(self) -> list[str]:
        rows = []
        for pod in self.pods:
            place = pod.node or f"PENDING: {pod.why_pending or 'not seen by the scheduler'}"
            rows.append(f"  {pod.namespace}/{pod.name}{_amounts(pod.asks)} -> {place}")
            facts = [f"{key}={pod.environment[key]}" for key in SHOWN if key in pod.environment]
            if facts:
                rows.append(f"      {' '.join(facts)}")
        waited = [f"  {', '.join(self.waited)} waited in a queue until others were done"] if self.waited else []
        return [f"Pods: {len(self.pods)}", *rows, *waited]


UNKNOWN = (
    "whether the account has the quota and the permissions, and the zones the capacity",
    "what the cloud's API refuses or changes by rules that neither its provider nor its documentation states",
    "whether images, drivers and network adapters work on the real nodes, and how fast",
    "how long the cloud takes: durations here are typical ones",
)
"""The limits of a rehearsal, for the end of its report."""
SHOWN = ("TPU_WORKER_ID", "TPU_TOPOLOGY", "MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES")
"""Variables that the text shows."""


def _amounts(found: dict[str, str] | object) -> str:
    assert isinstance(found, dict)
    return "".join(f", {amount} x {name}" for name, amount in found.items())
