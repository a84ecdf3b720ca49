"""Checks of this machine and of the stacks of a project, each with its result and a remedy."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commands.command_line import default_stack, find_project, stacks_of
from commands.confirmation import missing_credentials
from infra.hardware import this_machine
from infra.local import leftovers, lifecycle
from infra.local.settings import cache_folder, stack_cluster
from infra.make_command import make_command
from infra.project import CHECKOUT, PROJECT_VARIABLE

if TYPE_CHECKING:
    from stack.config import StackConfig

State = Literal["ok", "error", "optional"]
STYLES = {"ok": "green", "error": "bold red", "optional": "yellow"}
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one check."""

    name: str
    state: State
    """`ok`; `error` if the settings of a stack are invalid; `optional` if only some commands need the missing part."""
    found: str
    """Description of what this machine has."""
    remedy: str = ""
    """Remedy; empty if nothing is missing."""


def findings(project: Path | None) -> Iterator[Finding]:
    """Yield the results of the checks of this machine and of the project."""
    yield from _machine()
    yield from _tools()
    if project is None:
        yield Finding(
            name="project",
            state="optional",
            found="no Pulumi.NAME.yaml in this folder or above it",
            remedy=f"{make_command('init', STACK='')} writes one",
        )
        return
    configs = {}
    for stack in stacks_of(project):
        finding, config = _stack(project, stack)
        yield finding
        if config:
            configs[stack] = config
    yield from _clouds(configs)
    yield from _clusters(project, configs)


def _machine() -> Iterator[Finding]:
    capacity = this_machine()
    free = shutil.disk_usage(_existing(cache_folder())).free
    size = f"{capacity.millicores // 1000} CPUs, {capacity.memory / GIB:.0f} GiB of memory"
    yield Finding(name="machine", state="ok", found=f"{platform.system()} on {platform.machine()}, {size}")
    yield Finding(name="disk", state="ok", found=f"{free / 1e9:.0f} GB free in {cache_folder()}")
    problems = lifecycle.check_machine(stack_cluster(str(CHECKOUT), "doctor"))
    if problems:
        yield Finding(
            name="local cluster", state="optional", found="not possible on this machine", remedy="; ".join(problems)
        )
    else:
        yield Finding(name="local cluster", state="ok", found="this machine can run one")


def _existing(folder: Path) -> Path:
    """Return the nearest folder above that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def _tools() -> Iterator[Finding]:
    from setup.steps import steps

    all_steps = steps(cluster=True)
    left = [step.name for step in all_steps if not _is_done(step.is_done)]
    yield Finding(
        name="set-up",
        state="optional" if left else "ok",
        found=f"{len(all_steps) - len(left)} of {len(all_steps)} steps done",
        remedy=f"not done: {', '.join(left)}; run {make_command('setup', STACK='')}" if left else "",
    )
    program = shutil.which("trainyard")
    yield Finding(
        name="trainyard on PATH",
        state="ok" if program else "optional",
        found=program or "missing",
        remedy="" if program else f"run `make -C {CHECKOUT} install`, and add ~/.local/bin to PATH if it is not there",
    )
    yield Finding(name="checkout", state="ok", found=f"{CHECKOUT}, {commit(CHECKOUT)}")
    yield Finding(name="Python", state="ok", found=f"{platform.python_version()} in {sys.prefix}")


def _is_done(check: object) -> bool:
    """Return the result of a step's check. A check that fails is not done."""
    assert callable(check)
    try:
        return bool(check())
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return False


def commit(folder: Path) -> str:
    """Return the commit of a checkout, followed by `-dirty` if its files differ from it."""
    words = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "commit unknown (no git)"
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "commit unknown (no git)"


def _stack(project: Path, stack: str) -> tuple[Finding, StackConfig | None]:
    """Check the settings of a stack."""
    from stack.config import load_file

    try:
        config = load_file(project / f"Pulumi.{stack}.yaml")
    except ValueError as error:
        text = " | ".join(str(error).splitlines())
        return Finding(name=f"stack {stack}", state="error", found="settings are invalid", remedy=text), None
    jobs = ", ".join(job.name for job in config.jobs) or "no jobs"
    return Finding(name=f"stack {stack}", state="ok", found=f"{config.platform.kind}: {jobs}"), config


def _clouds(configs: dict[str, StackConfig]) -> Iterator[Finding]:
    """Check the logins and command-line tools of the clouds that stacks use."""
    used = {config.cloud.scheme: config.cloud.provisioned for config in configs.values() if config.cloud.provisioned}
    for scheme, cloud in sorted(used.items()):
        assert cloud is not None
        problem = missing_credentials(scheme)
        yield Finding(
            name=f"login for {cloud.command}",
            state="optional" if problem else "ok",
            found="missing" if problem else "found",
            remedy=f"{problem}; previews and rehearsals need none" if problem else "",
        )
        program = shutil.which(cloud.command)
        yield Finding(
            name=cloud.command,
            state="ok" if program else "optional",
            found=program or "not installed",
            remedy="" if program else "install it to query quota, list leftovers, and copy files of the bucket",
        )


def _clusters(project: Path, configs: dict[str, StackConfig]) -> Iterator[Finding]:
    """Report the local clusters of the project's stacks, and clusters of projects that no longer exist."""
    for stack, config in configs.items():
        cluster = stack_cluster(str(project), stack)
        if config.cloud.nodes_here and cluster.folder.exists():
            count = len(leftovers.processes(cluster.folder))
            yield Finding(
                name=f"cluster of {stack}",
                state="ok",
                found=f"{count} processes" if count else "stopped; its data still exists",
                remedy="" if count else f"{make_command('up', STACK=stack)} starts it again",
            )
    for each in lifecycle.abandoned_clusters():
        yield Finding(
            name=f"cluster of {each.stack}",
            state="optional",
            found=f"belongs to {each.owner}, which no longer exists",
            remedy=f"{make_command('down', STACK='', ORPHAN=each.folder.name)} deletes it",
        )


def doctor(project: Path | None, *, as_json: bool) -> int:
    """Print the findings. Return 1 if the settings of a stack are invalid."""
    folder = find_project(project)
    if folder is not None and folder != CHECKOUT:
        os.environ[PROJECT_VARIABLE] = str(folder)
    os.environ.setdefault("STACK", default_stack(folder) if folder else "")
    found = list(findings(folder))
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        Console(highlight=False, markup=False, emoji=False).print(_table(found))
    return int(any(each.state == "error" for each in found))


def _table(found: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("checked", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("found and what to do", overflow="fold")
    for each in found:
        text = Text(each.found)
        if each.remedy:
            text.append(f"\n{each.remedy}", style="dim" if each.state == "ok" else STYLES[each.state])
        table.add_row(each.name, Text(each.state, style=STYLES[each.state]), text)
    return table
