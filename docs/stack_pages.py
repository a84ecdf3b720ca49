"""`python -m docs.stack_pages` writes docs/stacks: the commands, price, quota and jobs of each stack."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from stack.config import StackConfig, load_file
from workloads.command import host_command
from workloads.layout import process_layout

PROJECT = Path(__file__).resolve().parents[1]
TARGET = Path(__file__).with_name("stacks")
STACKS = ("dev", "eks", "gke-tpu", "gke-v100", "local")
"""Stacks that come with the project. Users' own stacks have no page."""


def render(stack: str) -> str:
    """Return the text of a stack's page."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    config = load_file(file)
    comment = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    lines = [f"# Stack `{stack}`", "", *(line.removeprefix("# ") for line in comment), ""]
    lines.append("Generated from `Pulumi." + stack + ".yaml` by `python -m docs.stack_pages`.")
    return "\n".join([*lines, *_commands(stack, config), *_price(config), *_quota(config), *_jobs(config)]) + "\n"


def _commands(stack: str, config: StackConfig) -> Iterator[str]:
    suffix = "" if stack == "local" else f" STACK={stack}"
    cloud = config.cloud.provisioned
    yield from ("", "```")
    if cloud:
        yield f"make preview{suffix}        # changes, cost, quota and broken rules; no credentials"
        yield f"make rehearse{suffix}       # create, run and destroy it in a simulated cloud; no credentials"
    yield f"make up{suffix}"
    yield f"make down{suffix}"
    where = "in the cloud" if cloud else "on this machine"
    yield f"make verify-empty{suffix}   # list leftovers {where}"
    yield "```"


def _price(config: StackConfig) -> Iterator[str]:
    found = config.cloud.cost_estimate()
    if not found.lines:
        return
    yield from ("", "## Price", "", "| US dollars an hour | |", "|---|---|")
    for part, money in found.by_part().items():
        yield f"| {part} | {'more than ' if part in found.incomplete() else ''}{money.amount:,.2f} |"
    yield f"| sum | {found.total} |"
    if found.unpriced:
        yield f"\nNo price is known for {'; '.join(found.unpriced)}."


def _quota(config: StackConfig) -> Iterator[str]:
    found = config.cloud.quota()
    if found:
        yield from ("", "## Quota", "", "| location | quota | amount |", "|---|---|---|")
        yield from (f"| {each.location} | [{each.name}]({each.source}) | {each.amount} |" for each in found)


def _jobs(config: StackConfig) -> Iterator[str]:
    yield from ("", "## Jobs")
    for job in config.jobs:
        command = shlex.join(host_command(job, process_layout(job)).argv)
        yield from ("", f"`{job.name}`: {job.kind}, {job.hosts} hosts; each runs", "", f"    {command}")


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name in STACKS:
        (TARGET / f"{name}.md").write_text(render(name), encoding="utf-8")
