"""Report of a rehearsal as plain text, as JSON, and as an HTML page that loads nothing from the network."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from html import escape
from string import Template
from typing import Any

from commands.html import document, table
from settings.text import counted
from simulation.placement import Pod

LIMITS = (
    "whether the account has enough quota and permissions, and whether the zones have capacity",
    "whether the cloud's API rejects or changes inputs that the rehearsal accepted",
    "whether images, drivers and network adapters work on the real nodes, and how fast they are",
    "how long the cloud takes: estimated durations are typical values",
)
"""Questions that no rehearsal can answer. Every report lists them."""
SHOWN_VARIABLES = ("TPU_WORKER_ID", "TPU_TOPOLOGY", "MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES")
"""Environment variables that the plain text shows for each pod."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Node that the stack would have."""

    name: str
    pool: str
    machine: str
    zone: str
    accelerators: dict[str, str]


@dataclass(kw_only=True)
class Report:
    """Results of a rehearsal."""

    stack: str
    fault: str = ""
    """Fault that the simulated cloud injected, such as `denied:7`; empty for none."""
    problems: list[str] = field(default_factory=list)
    """Problems that the rehearsal found, one line each."""
    resources: dict[str, list[str]] = field(default_factory=dict)
    """Type -> ids of its cloud resources at the end of `up`."""
    up_failed: bool = False
    """True if `up` failed. The report then omits results that need the complete stack."""
    unchecked: dict[str, list[str]] = field(default_factory=dict)
    """Type -> inputs that the cloud's provider checks and the rehearsal does not."""
    without_rules: list[str] = field(default_factory=list)
    """Types whose inputs the rehearsal checked only for unknown names, missing values and wrong types."""
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    """Jobs that waited in their queue until other jobs ended."""
    quota: dict[str, int] = field(default_factory=dict)
    """Region and name of a quota -> amount that the stack needs."""
    cost: dict[str, float] = field(default_factory=dict)
    """Part of the stack, such as a pool -> US dollars per hour at the maximum number of nodes."""
    cost_total: str = ""
    """Sum of the costs, with the range in which it may lie; empty if the rehearsed program has no settings."""
    unpriced: list[str] = field(default_factory=list)
    """Resources without a price in the price table. The sum does not include them."""
    up_seconds: int = 0
    """Estimated seconds that `up` would take in the real clouds."""
    destroy_seconds: int = 0
    """Estimated seconds that `destroy` would take in the real clouds."""
    written: dict[str, list[str]] = field(default_factory=dict)
    """Bucket -> keys of the checkpoints that the rehearsal wrote for the jobs."""
    kept: list[str] = field(default_factory=list)
    """Buckets that the stack's settings protect from `destroy`."""
    left: list[str] = field(default_factory=list)
    """Resources, buckets, processes and files that remained after `destroy`."""
    receipt: dict[str, Any] = field(default_factory=dict)
    """Result of `make verify-empty` in the simulated cloud after `destroy`."""
    wall_seconds: float = 0.0
    """Seconds that the rehearsal itself took."""

    @property
    def passed(self) -> bool:
        """True if the rehearsal found no problem and left nothing behind."""
        return not self.problems and not self.left

    def to_json(self) -> str:
        """Return the complete report as JSON."""
        return json.dumps({**asdict(self), "passed": self.passed}, indent=1)

    def to_text(self) -> str:
        """Return the report as plain text."""
        lines = [f"Rehearsal of stack {self.stack}" + (f" with fault {self.fault}" if self.fault else "")]
        total = sum(map(len, self.resources.values()))
        heading = "Created before `pulumi up` failed" if self.up_failed else "Would be created"
        lines += ["", f"{heading}: {total} cloud resources"]
        lines += [f"  {len(ids):4}  {type_}" for type_, ids in sorted(self.resources.items())]
        if self.without_rules:
            lines.append(f"  checked only for unknown, missing and mistyped inputs: {', '.join(self.without_rules)}")
        lines.append("")
        if not self.up_failed:
            lines += [*self._nodes(), "", *self._pods(), ""]
            lines += ["Quota needed:", *(f"  {amount:6}  {name}" for name, amount in sorted(self.quota.items())), ""]
        lines += self._cost()
        if not self.up_failed:
            up, destroy = format_duration(self.up_seconds), format_duration(self.destroy_seconds)
            lines.append(f"`pulumi up` would take about {up}, and `pulumi destroy` about {destroy}")
        if self.left:
            lines += ["Left after destroy:", *(f"  {each}" for each in self.left)]
        else:
            rest = f", except kept buckets: {', '.join(map(self._bucket, self.kept))}" if self.kept else "."
            lines.append(f"After destroy, nothing was left in the cloud or on this machine{rest}")
        lines += ["", "A rehearsal cannot know:", *(f"  {each}" for each in self.unknown()), ""]
        lines += [f"problem: {each}" for each in self.problems]
        lines.append(f"The rehearsal {'passed' if self.passed else 'FAILED'} in {self.wall_seconds:.0f} s")
        return "\n".join(lines)

    def unknown(self) -> list[str]:
        """Return the questions that the rehearsal cannot answer."""
        unchecked = [
            f"whether the provider accepts {', '.join(names)} of {type_}" for type_, names in self.unchecked.items()
        ]
        return [*LIMITS, *unchecked]

    def _bucket(self, name: str) -> str:
        return f"{name} ({counted(len(self.written.get(name, ())), 'checkpoint')})"

    def _cost(self) -> list[str]:
        if not self.cost_total:
            return []
        more = ", plus the resources without a price" if self.unpriced else ""
        lines = [f"Costs {self.cost_total} an hour at the maximum number of nodes{more}:"]
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
            place = pod.node or f"PENDING: {pod.why_pending or 'no reason is known'}"
            rows.append(f"  {pod.namespace}/{pod.name}{_amounts(pod.accelerators)} -> {place}")
            facts = [f"{key}={pod.environment[key]}" for key in SHOWN_VARIABLES if key in pod.environment]
            if facts:
                rows.append(f"      {' '.join(facts)}")
        waited = [f"  {', '.join(self.waited)} waited in a queue until other jobs ended"] if self.waited else []
        return [f"Pods: {len(self.pods)}", *rows, *waited]


def _amounts(found: Mapping[str, str]) -> str:
    return "".join(f", {amount} x {name}" for name, amount in found.items())


def longest_chain(waits_for: Mapping[str, Sequence[str]], seconds: Mapping[str, int]) -> int:
    """Return the seconds until all resources are done. Each resource starts after all its dependencies are done."""

    @cache
    def done(name: str) -> int:
        return seconds.get(name, 0) + max((done(each) for each in waits_for.get(name, ()) if each != name), default=0)

    return max((done(name) for name in waits_for), default=0)


def reversed_graph(waits_for: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return resource -> its dependents. `destroy` deletes the dependents first."""
    found: dict[str, list[str]] = {name: [] for name in waits_for}
    for name, others in waits_for.items():
        for other in others:
            found.setdefault(other, []).append(name)
    return found


def format_duration(seconds: int) -> str:
    """Return a duration in words, such as `40 s`, `65 min` or `1 h 40 min`."""
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


GROUPS = {
    "network": ("compute/", "ec2/"),
    "identities and permissions": ("serviceaccount/", "projects/iAMMember", "iam/", "eks/podIdentityAssociation"),
    "bucket": ("storage/", "s3/"),
    "images": ("artifactregistry/", "ecr/", "docker-build:"),
    "cluster and pools": ("container/", "eks/"),
}
"""Group of resources on the page -> parts of their types. A type belongs to the first group that matches."""
OTHER_GROUP = "services and logs"
MAX_NODES = 64
"""Maximum number of nodes of a pool that the page draws. The page shows only the number of the other nodes."""
STYLE = """\
:root { --pod: #dbe7fb; --waiting: #fbdcd9; }
@media (prefers-color-scheme: dark) { :root { --pod: #263a5e; --waiting: #5c2623; } }
.pool { border: 1px solid var(--line); border-radius: 10px; padding: 10px 12px; margin: 0 0 12px; }
.pool > b { font-weight: 600; } .pool > span { color: var(--dim); font-size: 13px; margin-left: 8px; }
.nodes { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 8px; margin-top: 8px; }
.node { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 6px 8px; font-size: 13px;
  overflow-wrap: anywhere; }
.node > i { font-style: normal; color: var(--dim); }
.pod { background: var(--pod); border-radius: 5px; padding: 1px 6px; margin-top: 4px; }
.pod.waiting { background: var(--waiting); margin-bottom: 6px; }
td.num { white-space: nowrap; width: 1%; }
.bar { display: block; height: 10px; min-width: 2px; background: var(--a); border-radius: 3px; margin-top: 6px; }
li { margin: 2px 0; }
"""
BODY = Template("""\
<h1>Rehearsal of stack $stack</h1>
<p class="sub">$summary</p>
$problems
<h2>Pods on nodes</h2>
$placement
<h2>Cost</h2>
$cost
<h2>Cloud resources</h2>
$resources
<h2>Quota needed</h2>
$quota
<h2>A rehearsal cannot know</h2>
<ul>$unknown</ul>
""")


def page(report: Report) -> str:
    """Return the report as an HTML page."""
    css, verdict = ("good", "passed") if report.passed else ("bad", "failed")
    facts = [f'<b class="{css}">{verdict}</b> in {report.wall_seconds:.0f} s']
    facts += [f"with fault {escape(report.fault)}"] if report.fault else []
    if not report.up_failed:
        up, destroy = format_duration(report.up_seconds), format_duration(report.destroy_seconds)
        facts.append(f"in the cloud, creation would take about {up} and removal about {destroy}")
    problems = [*report.problems, *(f"left after destroy: {each}" for each in report.left)]
    items = "".join(f"<li>{escape(each)}</li>" for each in problems)
    body = BODY.substitute(
        stack=escape(report.stack),
        summary="; ".join(facts),
        problems=f'<h2 class="bad">Problems</h2><ul>{items}</ul>' if problems else "",
        placement="".join(_placement(report)) or "<p>None.</p>",
        cost=_cost(report),
        resources=_resources(report.resources),
        quota=table((name, f"{amount:,}") for name, amount in sorted(report.quota.items())) or "<p>None.</p>",
        unknown="".join(f"<li>{escape(each)}</li>" for each in report.unknown()),
    )
    return document(f"Rehearsal of stack {report.stack}", style=STYLE, body=body)


def _placement(report: Report) -> Iterable[str]:
    """Yield a box for pods without a node, and a box for each pool with its nodes and their pods."""
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in report.pods:
        by_node[pod.node].append(pod)
    for pod in by_node.pop("", []):
        reason = escape(pod.why_pending or "no reason is known")
        yield f'<div class="pod waiting">{escape(pod.name)} has no node: {reason}</div>'
    for pool in dict.fromkeys(each.pool for each in report.nodes):
        nodes = [each for each in report.nodes if each.pool == pool]
        machines = ", ".join(dict.fromkeys(each.machine for each in nodes))
        zones = ", ".join(dict.fromkeys(each.zone for each in nodes))
        boxes = "".join(
            f'<div class="node"><i>{escape(each.name + _amounts(each.accelerators))}</i>'
            + "".join(
                f'<div class="pod">{escape(pod.name + _amounts(pod.accelerators))}</div>' for pod in by_node[each.name]
            )
            + "</div>"
            for each in nodes[:MAX_NODES]
        )
        more = f"<p>and {len(nodes) - MAX_NODES:,} more nodes</p>" if len(nodes) > MAX_NODES else ""
        facts = f"{len(nodes):,} x {escape(machines)} in {escape(zones)}"
        yield f'<div class="pool"><b>{escape(pool)}</b><span>{facts}</span><div class="nodes">{boxes}</div>{more}</div>'


def _cost(report: Report) -> str:
    if not report.cost_total:
        return "<p>No price is known.</p>"
    most = max(report.cost.values(), default=0) or 1
    rows = "".join(
        f'<tr><th>{escape(part)}</th><td><span class="bar" style="width: {100 * amount / most:.1f}%"></span></td>'
        f'<td class="num">${amount:,.2f} an hour</td></tr>'
        for part, amount in sorted(report.cost.items(), key=lambda item: -item[1])
    )
    unpriced = "".join(f"<li>no price is known: {escape(each)}</li>" for each in report.unpriced)
    total = f"<p>{escape(report.cost_total)} an hour at the maximum number of nodes.</p>"
    return f"{total}<table>{rows}</table><ul>{unpriced}</ul>"


def _resources(resources: Mapping[str, list[str]]) -> str:
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for type_, ids in sorted(resources.items()):
        group = next((name for name, parts in GROUPS.items() if any(part in type_ for part in parts)), OTHER_GROUP)
        groups[group][type_.rpartition(":")[2]] += len(ids)
    return table(
        (group, ", ".join(f"{count} {kind}" for kind, count in kinds.items())) for group, kinds in groups.items()
    )
