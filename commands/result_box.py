"""Box at the end of a followed job: result, time, checkpoint, cost, and the next commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from commands.bucket import Bucket
from commands.interrupts import CommandError
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import seconds_between
from commands.monitor.screen import format_seconds
from infra.make_command import make_command
from stack.config import StackConfig

MIN_RULE = 40
LABEL_WIDTH = 10
"""Characters of the first column."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """End of one job."""

    job: JobState
    result: str
    """Result of its training; empty if unknown."""
    checkpoint: str
    """Place of its newest checkpoint."""
    cost: str
    """Price of its hosts."""
    is_script: bool = False
    """True if it runs the user's program."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of each row."""
        time = format_seconds(seconds_between(self.job.started, self.job.finished))
        reason = f": {self.job.reason}" if self.job.reason and self.job.state == "failed" else ""
        yield self.job.name, f"{self.job.state}{f' after {time}' if time else ''}{reason}"
        if self.result:
            yield "result", self.result
        yield "checkpoint", self.checkpoint
        yield "cost", self.cost


def job_result(
    job: JobState, result: str, config: StackConfig, outputs: Mapping[str, Any], record: Mapping[str, Any]
) -> JobResult:
    """Return the end of a job. `record` is its complete run record."""
    is_script = any(spec.name == job.name and spec.recipe is None for spec in config.jobs)
    bucket = Bucket.of(outputs, is_here=config.cloud.nodes_here > 0)
    return JobResult(
        job=job,
        result=result,
        checkpoint=checkpoint_text(bucket, str(record["checkpoints"])),
        cost=cost_text(config, record.get("usd")),
        is_script=is_script,
    )


def checkpoint_text(bucket: Bucket, folder: str) -> str:
    """Return the place of the newest checkpoint in a folder. Lists only a folder of this machine, which is fast."""
    if not bucket.is_here:
        return bucket.location(folder) if bucket.url else "in the job's volume"
    try:
        names, newest = bucket.names(folder), bucket.newest_checkpoint(folder)
    except (CommandError, OSError):
        return short_home(bucket.location(folder))
    if not names:
        return "none was saved"
    return short_home(f"{bucket.location(folder)}{f'/{newest}' if newest else ''}")


def cost_text(config: StackConfig, usd: float | None) -> str:
    """Return the cost of a job's hosts, and what the stack costs from now on."""
    if config.cloud.nodes_here:
        return "nothing: it ran on this machine"
    if not config.cloud.provisioned:
        return "unknown: the cluster is not Trainyard's"
    hourly = config.cloud.cost_estimate().total.amount
    spent = f"about ${usd:,.2f} for its hosts" if usd is not None else "unknown: a price of its hosts is missing"
    return f"{spent}; the stack costs up to ${hourly:,.2f} an hour until you remove it"


def next_commands(results: Sequence[JobResult]) -> list[tuple[str, str]]:
    """Return three commands, as they are typed, each with its purpose. A failed job has precedence."""
    failed = next((each for each in results if each.job.state != "complete"), None)
    found = failed or results[0]
    name = found.job.name
    down = (_typed("down"), "remove the stack")
    if failed:
        return [
            (_typed("logs", JOB=name), "show all of its log"),
            (_typed("rerun", JOB=name), "run it again" + ("" if found.is_script else ", from its last checkpoint")),
            down,
        ]
    if found.is_script:
        return [
            (_typed("fetch", JOB=name), "copy its results here"),
            (_typed("rerun", JOB=name), "run it again"),
            down,
        ]
    return [
        (_typed("report", JOB=name), "write a page with its curves"),
        (_typed("fetch", JOB=name), "copy checkpoint and metrics here"),
        down,
    ]


def _typed(target: str, **variables: str) -> str:
    return make_command(target, **variables).strip("`")


def show_box(results: Sequence[JobResult], seconds: float | None, out: TextIO) -> None:
    """Print the box, without a frame if the output is not a terminal."""
    rows = [row for place, each in enumerate(results) for row in ([("", "")] if place else []) + list(each.rows())]
    if seconds is not None:
        rows.append(("command", f"took {format_seconds(seconds)}"))
    width = max([LABEL_WIDTH, *(len(label) for label, _ in rows)])
    columns = shutil.get_terminal_size().columns - len("| ") - 1 if out.isatty() else 1000
    rows += [("" if place else "next", text) for place, text in enumerate(_command_lines(results, columns - width - 2))]
    lines = [f"{label:{width}}  {text}".rstrip() for label, text in rows]
    if not out.isatty():
        print("", *lines, sep="\n", file=out, flush=True)
        return
    # Without a right edge, a long path is one piece that can be copied.
    rule = "─" * min(columns, max(MIN_RULE, *(len(line) for line in lines)))
    print("", f"╭─{rule}", *(f"│ {line}" for line in lines), f"╰─{rule}", sep="\n", file=out, flush=True)


def _command_lines(results: Sequence[JobResult], columns: int) -> list[str]:
    """Return the next commands, with their purposes if all lines fit."""
    found = next_commands(results)
    longest = max(len(command) for command, _ in found)
    lines = [f"{command:{longest}}  {why}" for command, why in found]
    return lines if max(map(len, lines)) <= columns else [command for command, _ in found]


def short_home(path: str) -> str:
    """Return a path with `~` for the user's home folder, as a shell reads it."""
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path.startswith(home + os.sep) else path
