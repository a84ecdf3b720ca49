"""Stack with two T4 nodes, a job and a bucket. Also builds the report that a pull request gets about a change."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import date
from typing import Any

from commands.review.plan import difference
from commands.review.recorded import record_program
from commands.review.report import Report, markdown
from policy.catalogue import RULES
from policy.rules import findings
from stack.config import parse

TODAY = date(2026, 11, 21)
POOL = {
    "name": "gpus",
    "nodes": 2,
    "machine_type": "n1-standard-8",
    "accelerator": "nvidia-tesla-t4",
    "accelerators_per_node": 2,
    "min_nodes": 0,
    "capacity": "spot",
}
JOB = {
    "name": "digits",
    "recipe": "digits",
    "hosts": 2,
    "accelerator": "nvidia-tesla-t4",
    "accelerators_per_host": 2,
    "resources": {"cpu": 4, "memory": "16Gi"},
}
STACK: dict[str, Any] = {"platform": {"kind": "gke", "project": "some-project", "pools": [POOL]}, "jobs": [JOB]}


def changed_stack(pool: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the stack with changes of its pool and its top-level keys."""
    values = copy.deepcopy(STACK) | changes
    values["platform"]["pools"] = [{**POOL, **(pool or {})}]
    return values


def report(
    after: dict[str, Any],
    *,
    before: dict[str, Any] = STACK,
    program: dict[str, dict[str, Any]] | None = None,
    running: dict[str, list[str]] | None = None,
    **more: Any,
) -> Report:
    """Return the report about a change of settings from `before` to `after`.

    `program` maps a resource's name to the inputs that a changed program sets. `running` maps a pool to its running
    jobs.
    """
    config = parse(after)
    graph = [
        replace(each, inputs={**each.inputs, **(program or {}).get(each.name, {})})
        for each in record_program(after, ())
    ]
    return Report(
        stack="dev",
        after=config,
        before=parse(before),
        steps=difference(record_program(before, ()), graph),
        is_from_engine=False,
        findings=findings(graph, RULES, config.policy.settings()),
        running=running or {},
        **more,
    )


def markdown_report(after: dict[str, Any], **more: Any) -> str:
    """Return the report in Markdown, as in a comment on the pull request."""
    return markdown(report(after, **more), TODAY)
