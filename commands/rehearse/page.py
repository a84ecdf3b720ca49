"""The HTML page of a rehearsal: pods on nodes, cost, resources and quota. It loads nothing from a network. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from string import Template

from commands.html_page import document
from commands.rehearse.report import Report, format_duration
from simulation.placement import Pod

GROUPS = {
    "network": ("compute/", "ec2/"),
    "identities and permissions": ("serviceaccount/", "projects/iAMMember", "iam/", "eks/podIdentityAssociation"),
    "bucket": ("storage/", "s3/"),
    "images": ("artifactregistry/", "ecr/", "docker-build:"),
    "cluster and pools": ("container/", "eks/"),
}
"""Group of resources -> parts of their types. A type belongs to the first group that matches."""
OTHERS = "services and logs"
MAX_NODES = 64
"""Maximum number of nodes of a pool that the page draws. A line gives the number of the others."""
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
<h2>Quota</h2>
$quota
""")


def page(report: Report) -> str:
    """Return the page of a rehearsal."""
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
        placement="".join(_placement(report)) or "<p>No nodes, because `up` failed.</p>",
        cost=_cost(report),
        resources=_resources(report.resources),
        quota=_rows((name, f"{amount:,}") for name, amount in sorted(report.quota.items())) or "<p>None.</p>",
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
            f'<div class="node"><i>{escape(each.name)}{_amounts(each.accelerators)}</i>'
            + "".join(
                f'<div class="pod">{escape(pod.name)}{_amounts(pod.accelerators)}</div>' for pod in by_node[each.name]
            )
            + "</div>"
            for each in nodes[:MAX_NODES]
        )
        more = f"<p>and {len(nodes) - MAX_NODES:,} more nodes</p>" if len(nodes) > MAX_NODES else ""
        facts = f"{len(nodes):,} x {escape(machines)} in {escape(zones)}"
        yield f'<div class="pool"><b>{escape(pool)}</b><span>{facts}</span><div class="nodes">{boxes}</div>{more}</div>'


def _amounts(found: Mapping[str, str]) -> str:
    return "".join(f", {escape(amount)} x {escape(name)}" for name, amount in found.items())


def _cost(report: Report) -> str:
    """Return the cost of each part as bars."""
    if not report.cost_total:
        return "<p>No price is known.</p>"
    most = max(report.cost.values(), default=0) or 1
    rows = "".join(
        f'<tr><th>{escape(part)}</th><td><span class="bar" style="width: {100 * amount / most:.1f}%"></span></td>'
        f'<td class="num">${amount:,.2f} an hour</td></tr>'
        for part, amount in sorted(report.cost.items(), key=lambda item: -item[1])
    )
    unpriced = "".join(f"<li>no price is known: {escape(each)}</li>" for each in report.unpriced)
    return f"<p>{escape(report.cost_total)} an hour with the most nodes.</p><table>{rows}</table><ul>{unpriced}</ul>"


def _resources(resources: Mapping[str, list[str]]) -> str:
    """Return the numbers of resources by group."""
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for type_, ids in sorted(resources.items()):
        group = next((name for name, parts in GROUPS.items() if any(part in type_ for part in parts)), OTHERS)
        groups[group][type_.rpartition(":")[2]] = len(ids)
    return _rows(
        (group, ", ".join(f"{count} {kind}" for kind, count in kinds.items())) for group, kinds in groups.items()
    )


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>" if cells else ""
