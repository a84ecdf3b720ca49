"""Report on the effects of a change, as Markdown and as JSON."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from textwrap import wrap
from typing import Any

from commands.confirmation import missing_quota
from commands.review.official import PluginReview
from commands.review.plan import BUCKETS, POOLS, Step, by_kind, forbidden, value_at
from infra.cloud import Quota
from infra.cost import CostEstimate, Line, over_budget
from infra.make_command import make_command
from policy.rules import Finding
from settings.problem import dotted
from settings.text import counted
from simulation.cloud.values import SIGNATURE_KEY, UNKNOWNS
from stack.config import StackConfig
from stack.language_estimate import language_estimates
from stack.placement import advice
from workloads.command import host_command, process_layout
from workloads.kinds import KINDS

MAX_RESOURCES = 12
"""Maximum number of updated resources that the report lists. If there are more, it lists only recycled pools."""
ALWAYS_LISTED_TYPES = (
    *POOLS,
    *BUCKETS,
    ":Cluster",
    *(f":{pod_type}" for kind in KINDS.values() for pod_type in kind.pod_types),
)
"""Suffixes of the types that the report lists even if only their provider changes."""
MAX_COMMENT_LENGTH = 65_000
"""Maximum characters of a comment. GitHub allows 65,536, including the marker that identifies the comment."""
WIDTH = 96
"""Maximum characters of a line that GitHub shows in a comment without scrolling."""
MAX_VALUES = 3
"""Maximum number of values that the report shows for a changed path."""
MAX_VALUE_LENGTH = 60
"""Maximum characters of a value. `...` replaces the middle of a longer value."""
ABSENT = object()
"""Marker of a missing value."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Review of one stack."""

    stack: str
    after: StackConfig
    """Settings of the stack."""
    before: StackConfig | None
    """Settings before the change; None for a new stack, or if this program can no longer read them."""
    steps: Sequence[Step]
    is_from_engine: bool
    """True if the plan comes from Pulumi's engine, False if it compares two recordings of the program."""
    base: str = ""
    """Sentence that describes `before`."""
    comparison_limits: str = ""
    """Sentence about the limits of the comparison; empty if it is complete."""
    findings: Sequence[Finding]
    running: dict[str, list[str]]
    """Pool -> jobs that run there."""
    rehearsal: Mapping[str, Any] | None = None
    """JSON report of a rehearsal."""
    plugins: PluginReview = field(default_factory=PluginReview)
    """Checks and plans of the official plugins."""
    remaining_quota: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Name and location of a quota -> what the account has left; empty if the preview did not query the cloud."""

    @property
    def is_complete(self) -> bool:
        """True if the report shows all quotas and jobs, not only changed ones: the stack is new or unchanged."""
        return self.before is None or all(each.action == "same" for each in self.steps)

    @property
    def rejected_changes(self) -> list[str]:
        """Changes that the cloud rejects while the cluster with the earlier settings exists."""
        if self.before is None:
            return []
        return [str(each) for each in self.after.cloud.problems_after(self.before.cloud)]

    @property
    def failures(self) -> list[str]:
        """Reasons not to merge the change."""
        price = over_budget(self.after.cloud.cost_estimate(), self.after.budget)
        return [
            *forbidden(self.steps, self.running, self.after.policy.may_replace),
            *([f"stack {price}"] if price else []),
            *(f"stack {each}" for each in missing_quota(self.after, self.remaining_quota, self.before)),
            *self.rejected_changes,
            *(f"{each.name}: {each.crash}" for each in self.steps if each.crash),
            *(f"{each.resource}: {each.problem.message} ({each.rule.name})" for each in self.findings if each.fails),
            *self.plugins.failures,
            *(f"rehearsal: {each}" for each in rehearsal_problems(self.rehearsal)),
        ]


def markdown(report: Report, today: date) -> str:
    """Return the report as a comment for a pull request."""
    lines = [f"### Stack `{report.stack}` {'fails' if report.failures else 'passes'}", ""]
    lines += [*(f"- **{each}**" for each in report.failures), ""] if report.failures else []
    lines += [report.base, ""] if report.base else []
    lines += _resources(report)
    lines += _price(report, today)
    lines += _language(report)
    lines += _quota(report)
    notes = [
        f"- {each.rule.name}: {each.resource}: {each.problem.message}"
        + (f" (excused: {each.excused})" if each.excused else "")
        for each in report.findings
        if not each.fails
    ] + _unused_exceptions(report)
    if notes:
        lines += ["", "Policy:", *notes]
    if hints := advice(report.after.cloud, report.after.jobs, report.after.ttl_hours):
        lines += ["", "Advice:", *(f"- {each}" for each in hints)]
    lines += _jobs(report)
    lines += report.plugins.lines()
    lines += ["", f"Rehearsal: {verdict(report.rehearsal)}."]
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """Return as much of a report as fits in a comment, in whole lines."""
    kept, left = list[str](), MAX_COMMENT_LENGTH
    for line in text.splitlines():
        left -= len(line) + 1
        if left < 0:
            note = "**The rest does not fit here**: it is in the summary of the workflow's run."
            return "\n".join([*kept, "", note, ""])
        kept.append(line)
    return text


def rehearsal_problems(rehearsal: Mapping[str, Any] | None) -> list[str]:
    """Return the problems in the JSON report of a rehearsal."""
    return [*rehearsal["problems"], *(f"left: {each}" for each in rehearsal["left"])] if rehearsal else []


def verdict(rehearsal: Mapping[str, Any] | None) -> str:
    """Return the result of a rehearsal, from its JSON report, as a sentence without a full stop."""
    if rehearsal is None:
        return "not rehearsed"
    pods = rehearsal["pods"]
    placed = sum(bool(each["node"]) for each in pods)
    if problems := rehearsal_problems(rehearsal):
        return f"**failed**, {placed} of {counted(len(pods), 'pod')} placed: {'; '.join(problems)}"
    nodes = counted(len(rehearsal["nodes"]), "node")
    return f"passed, {counted(placed, 'pod')} placed on {nodes}, nothing left after destroy"


def invalid_settings(stack: str, reason: str, width: int = WIDTH) -> str:
    """Return the report for settings that cannot be read, in lines of at most `width` characters."""
    lines = [each for line in reason.strip().splitlines() for each in wrap(line, width, break_on_hyphens=False) or [""]]
    return "\n".join([f"### Stack `{stack}` has invalid settings", "", "```", *lines, "```"]) + "\n"


def removal(stack: str, before: StackConfig | None) -> str:
    """Return the report for a change that removes a stack's file. `before` is None if it cannot be read."""
    found = before.cloud.cost_estimate() if before else CostEstimate(lines=())
    more = " and the resources without a price" if found.unpriced else ""
    price = f" It costs **{found.total}{more} an hour** while it is up." if found.lines else ""
    down, verify = make_command("down", STACK=stack), make_command("verify-empty", STACK=stack)
    return (
        f"### Stack `{stack}` loses its settings\n\n"
        f"**Its resources remain.** Run {down} or the workflow `destroy` before the merge: without "
        f"the file, {verify} cannot list leftovers, and `ttl_hours` has no effect.{price}\n"
    )


def as_json(report: Report, today: date) -> dict[str, Any]:
    """Return the report for programs, as JSON values."""
    found = report.after.cloud.cost_estimate()
    return {
        "stack": report.stack,
        "passes": not report.failures,
        "failures": report.failures,
        "source": "engine" if report.is_from_engine else "recording",
        "resources": {action: dict(kinds) for action, kinds in by_kind(report.steps).items()},
        "price": {
            "total": asdict(found.total),
            "lines": [_price_line(each) for each in found.lines],
            "unpriced": list(found.unpriced),
            "warnings": found.warnings(today),
        },
        "language": [asdict(each) for each in language_estimates(report.after)],
        "advice": advice(report.after.cloud, report.after.jobs, report.after.ttl_hours),
        "quota": [asdict(each) for each in report.after.cloud.quota()],
        "policy": [
            {
                "rule": each.rule.name,
                "code": each.problem.code,
                "resource": each.resource,
                "path": dotted(each.problem.path),
                "message": each.problem.message,
                "fails": each.fails,
            }
            for each in report.findings
        ],
        "worker_commands": {job.name: list(host_command(job, process_layout(job)).argv) for job in report.after.jobs},
        "plugins": asdict(report.plugins),
        "rehearsal": verdict(report.rehearsal),
    }


def _price_line(line: Line) -> dict[str, Any]:
    """Return the hourly cost and the unit price of an item; both are null if no price is known."""
    cost = line.cost(spot=line.spot)
    return {
        "part": line.part,
        "item": line.item.name,
        "quantity": line.quantity,
        "spot": line.spot,
        "cost": asdict(cost) if cost else None,
        "unit_price": asdict(line.price) | {"day": line.price.day.isoformat()} if line.price else None,
    }


def _unused_exceptions(report: Report) -> list[str]:
    broken = {(each.rule.name, each.resource) for each in report.findings}
    return [
        f"- {each.rule}: {each.resource}: does not break this rule, so the exception is unused; "
        "correct or remove the exception"
        for each in report.after.policy.exceptions
        if (each.rule, each.resource) not in broken
    ]


def _resources(report: Report) -> list[str]:
    counts = by_kind(report.steps)
    lines: list[str] = []
    for action, kinds in counts.items():
        total = sum(kinds.values())
        if action == "same":
            lines += [f"{counted(total, 'resource')} unchanged.", ""]
            continue
        is_destructive = action in ("replace", "delete")
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lines.append(f"{f'**{action.upper()}**' if is_destructive else action.capitalize()} {total}: {listed}")
        named = [each for each in report.steps if each.action == action and not each.is_component]
        if is_destructive or (action == "update" and len(named) <= MAX_RESOURCES):
            lines += _named(named)
        elif action == "update":
            lines += _named(each for each in named if each.recycles)
        # Without an empty line, Markdown would read the next line as part of the list's last item.
        lines.append("")
    if not report.is_from_engine and "update" in counts:
        lines += ["Compared without a cloud: an update may turn out to be a replacement.", ""]
    return [*lines, *([report.comparison_limits, ""] if report.comparison_limits else [])]


def _named(steps: Iterable[Step]) -> Iterator[str]:
    """Yield a line for each step, but only one for all steps with the same provider as their reason.

    Steps of ALWAYS_LISTED_TYPES always have their own lines.
    """
    by_provider: Counter[str] = Counter()
    for step in steps:
        if step.provider and not step.type.endswith(ALWAYS_LISTED_TYPES):
            by_provider[step.provider] += 1
            continue
        why = ", ".join(format_change(path, step.before, step.inputs) for path in step.changed)
        kept = "; the old resource stays in the cloud and costs money until you delete it"
        stays = kept if step.kept and step.action != "update" else ""
        recycles = f"; **{step.recycles}**" if step.recycles else ""
        yield f"- `{step.name}`{why and f': {why}'}{stays}{recycles}"
    yield from (f"- {count} more because their provider `{name}` changes" for name, count in by_provider.items())


def _price(report: Report, today: date) -> list[str]:
    now = report.after.cloud.cost_estimate()
    if not now.lines:
        return []
    then = report.before.cloud.cost_estimate() if report.before else CostEstimate(lines=())
    lines = ["| $ an hour | before | after | all on demand | all spot |", "|---|---|---|---|---|"]
    old, new = then.by_part(), now.by_part()
    columns = [_cells(then), _cells(now), _cells(now, spot=False), _cells(now, spot=True)]
    for part in dict.fromkeys([*new, *old]):
        lines.append(f"| {part} | {' | '.join(column.get(part, '-') for column in columns)} |")
    more = ("", " + resources without a price")
    sums = [f"{then.total}{more[bool(then.unpriced)]}" if old else "-", f"**{now.total}{more[bool(now.unpriced)]}**"]
    lines.append(f"| **sum** | {sums[0]} | {sums[1]} | | |")
    if now.unpriced:
        lines.append(f"\nNo price is known for {'; '.join(now.unpriced)}.")
    return [*lines, *(f"- {each}" for each in now.warnings(today))]


def _language(report: Report) -> list[str]:
    lines = [line for each in language_estimates(report.after) for line in each.lines()]
    return ["", "Language models:", *lines] if lines else []


def _cells(found: CostEstimate, *, spot: bool | None = None) -> dict[str, str]:
    """Return part -> price. The price begins with "more than" if an item of the part has no known price."""
    incomplete = found.incomplete(spot=spot)
    return {
        part: f"more than {money.amount:,.2f}" if part in incomplete else f"{money.amount:,.2f}"
        for part, money in found.by_part(spot=spot).items()
    }


def _quota(report: Report) -> list[str]:
    before = None if report.is_complete else report.before
    then = {_key(each): each.amount for each in before.cloud.quota()} if before else {}
    lines = []
    for each in report.after.cloud.quota():
        old = then.get(_key(each), 0)
        if old != each.amount:
            lines.append(f"- {each.location} {each.name}: {f'{old} -> ' if before else ''}{each.amount}")
    return ["", "Quota:", *lines] if lines else []


def _key(quota: Quota) -> tuple[str, str]:
    return quota.name, quota.location


def _jobs(report: Report) -> list[str]:
    was = {job.name: job for job in report.before.jobs} if report.before and not report.is_complete else {}
    lines = [
        f"- {job.name}: `{shlex.join(host_command(job, process_layout(job)).argv)}`"
        for job in report.after.jobs
        if was.get(job.name) != job
    ]
    return ["", "Worker commands:", *lines] if lines else []


def format_change(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a changed path with its values, such as ``nodeCount `2` -> `4` ``.

    Return only the path if its values are secret, unknown or longer than a line.
    """
    begin, end = value_at(before, path, ABSENT), value_at(after, path, ABSENT)
    found = [f"{where} {_value(old)} -> {_value(new)}" for where, old, new in _leaves(path, begin, end)]
    more = [f"and {len(found) - MAX_VALUES} more"] if len(found) > MAX_VALUES else []
    return ", ".join([*found[:MAX_VALUES], *more]) or path


def _leaves(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, old value and new value of each changed number, text or boolean that may be shown."""
    if old == new:
        return
    if all(_is_branch(each) for each in (old, new)):
        olds, news = _branches(old), _branches(new)
        for key in dict.fromkeys([*olds, *news]):
            yield from _leaves(f"{path}{key}", olds.get(key, ABSENT), news.get(key, ABSENT))
    elif all(_is_shown(each) for each in (old, new)):
        yield path, old, new


def _is_branch(value: Any) -> bool:
    return value is ABSENT or (isinstance(value, list | Mapping) and SIGNATURE_KEY not in value)


def _is_shown(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" not in value and value not in UNKNOWNS | {"[secret]"}
    return value is ABSENT or value is None or isinstance(value, bool | int | float)


def _branches(value: Any) -> dict[str, Any]:
    """Return next part of the path -> value. If the items of a list have unique names, an item's part is its name."""
    if value is ABSENT:
        return {}
    if isinstance(value, Mapping):
        return {f".{key}": each for key, each in value.items()}
    names = [each.get("name") if isinstance(each, Mapping) else None for each in value]
    if all(isinstance(each, str) for each in names) and len(set(names)) == len(names):
        return {f"[{name}]": each for name, each in zip(names, value, strict=True)}
    return {f"[{place}]": each for place, each in enumerate(value)}


def _value(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) and value else json.dumps(value)
    if len(text) > MAX_VALUE_LENGTH:
        half = MAX_VALUE_LENGTH // 2
        text = f"{text[:half]}...{text[-half:]}"
    return "`" + text.replace("`", "'") + "`"
