"""Checks of this machine and of a project's stacks, and a bundle of their settings, state and logs for a bug report."""

from __future__ import annotations

import io
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commands import pulumi_output
from commands.command_line import default_stack, find_project, stacks_of
from commands.confirmation import missing_credentials
from commands.environment import PROJECT, PulumiFailed
from commands.interrupts import CommandError
from commands.monitor.cluster import StackOutputs, UnknownStack, Unreachable
from commands.output_file import output_file
from commands.stack import outputs, pulumi, stack_exists
from infra.hardware import this_machine
from infra.local import leftovers, lifecycle
from infra.local.settings import cache_folder, stack_cluster
from infra.make_command import DEFAULT_STACK, make_command
from infra.project import CHECKOUT, PROJECT_VARIABLE
from settings.problem import TOKEN_PATTERNS, secrets_in_variables
from setup.disk import needed_bytes

if TYPE_CHECKING:
    from setup.progress import Step
    from stack.config import StackConfig

State = Literal["ok", "error", "optional"]
STYLES = {"ok": "green", "error": "bold red", "optional": "yellow"}
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one check."""

    name: str
    state: State
    """`ok`; `error` if the settings of a stack are invalid; `optional` for any other problem."""
    found: str
    """Result as text."""
    remedy: str = ""
    """What to do; empty if there is nothing to do."""


def findings(project: Path | None) -> Iterator[Finding]:
    """Yield the results of the checks of this machine and of the project."""
    missing, num_steps = set_up_steps()
    yield from _machine(missing)
    yield from _tools(num_steps, missing)
    if project is None:
        remedy = f"{make_command('init', STACK='')} writes one"
        yield _optional("project", "no Pulumi.NAME.yaml in this folder or above it", remedy)
        return
    configs = {}
    for stack in stacks_of(project):
        finding, config = _stack(project, stack)
        yield finding
        if config:
            configs[stack] = config
    yield from _clouds(configs)
    yield from _clusters(project, configs)


def _optional(name: str, found: str, remedy: str) -> Finding:
    """Return a finding with the state `optional` if it has a remedy, else `ok`."""
    return Finding(name=name, state="optional" if remedy else "ok", found=found, remedy=remedy)


def _machine(missing: list[Step]) -> Iterator[Finding]:
    """Check the hardware, and the disk space that the missing set-up steps need."""
    capacity, cache = this_machine(), cache_folder()
    needed = max(needed_bytes(missing), lifecycle.RUN_BYTES)
    free = shutil.disk_usage(next(each for each in (cache, *cache.parents) if each.exists())).free
    size = f"{capacity.millicores // 1000} CPUs, {capacity.memory / GIB:.0f} GiB of memory"
    yield Finding(name="machine", state="ok", found=f"{platform.system()} on {platform.machine()}, {size}")
    space = f"{free / 1e9:.1f} GB free in {cache}, {math.ceil(needed / 1e9)} GB needed"
    yield _optional("disk", space, "; ".join(lifecycle.disk_problems(needed)))
    problems = lifecycle.check_machine(stack_cluster(str(CHECKOUT), "doctor"), needed)
    found = "not possible on this machine" if problems else "possible on this machine"
    yield _optional("local cluster", found, "; ".join(problems))


def set_up_steps() -> tuple[list[Step], int]:
    """Return the unfinished steps of set-up for a local cluster, and the number of all steps."""
    from setup.steps import steps

    found = steps(cluster=True)
    return [step for step in found if not _is_done(step.is_done)], len(found)


def _tools(num_steps: int, missing: list[Step]) -> Iterator[Finding]:
    """Report the steps of set-up, the location of `trainyard` and of the checkout, and the version of Python."""
    left = [step.name for step in missing]
    remedy = f"not done: {', '.join(left)}; run {make_command('setup', STACK='')}" if left else ""
    yield _optional("set-up", f"{num_steps - len(left)} of {num_steps} steps done", remedy)
    program = shutil.which("trainyard")
    remedy = f"run `make -C {CHECKOUT} install`, and add ~/.local/bin to PATH if it is not there"
    yield _optional("trainyard on PATH", program or "missing", "" if program else remedy)
    yield Finding(name="checkout", state="ok", found=f"{CHECKOUT}, {commit(CHECKOUT)}")
    yield Finding(name="Python", state="ok", found=f"{platform.python_version()} in {sys.prefix}")


def _is_done(check: object) -> bool:
    """Return True if a step is done. A check that raises an error counts as not done."""
    assert callable(check)
    try:
        return bool(check())
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return False


def commit(folder: Path) -> str:
    """Return the commit of a checkout, followed by `-dirty` if tracked files differ from that commit."""
    words = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "commit unknown (no git)"
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "commit unknown (no git)"


def _stack(project: Path, stack: str) -> tuple[Finding, StackConfig | None]:
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
        remedy = f"{problem}; previews and rehearsals need no credentials" if problem else ""
        yield _optional(f"login for {cloud.command}", "cannot be used" if problem else "found", remedy)
        program = shutil.which(cloud.command)
        remedy = "" if program else "install it to query quota, list leftovers, and copy files of the bucket"
        yield _optional(cloud.command, program or "not installed", remedy)


def _clusters(project: Path, configs: dict[str, StackConfig]) -> Iterator[Finding]:
    """Report the local clusters of the project's stacks, and clusters of projects that no longer exist."""
    for stack, config in configs.items():
        cluster = stack_cluster(str(project), stack)
        if config.cloud.nodes_here and cluster.folder.exists():
            count = len(leftovers.processes(cluster.folder))
            found = f"{count} processes" if count else "stopped; its data still exists"
            remedy = "" if count else f"{make_command('up', STACK=stack)} starts it again"
            yield Finding(name=f"cluster of {stack}", state="ok", found=found, remedy=remedy)
    for each in lifecycle.abandoned_clusters():
        remedy = f"{make_command('down', STACK='', ORPHAN=each.folder.name)} deletes it"
        yield _optional(f"cluster of {each.stack}", f"belongs to {each.owner}, which no longer exists", remedy)


def doctor(project: Path | None, *, as_json: bool) -> int:
    """Print the findings about this machine and a project. Return 1 if the settings of a stack are invalid."""
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


MASK = "[masked]"
MAX_LOG_LINES = 500
"""Maximum number of lines of each log."""
MAX_PULUMI_LOGS = 5
"""Maximum number of logs of Pulumi commands in the bundle, which has the newest logs."""
MAX_PODS = 32
"""Maximum number of pods whose logs the bundle contains. It has the logs of the newest pods."""
SECRET_KEYS = ("ciphertext", "secure", "encryptionsalt", "kubeconfig", "plaintext")
"""Keys in settings and states whose values the bundle masks, encrypted or not."""
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
WEB_TOKEN = re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*")
"""JSON web tokens, such as those of service accounts: https://datatracker.ietf.org/doc/html/rfc7519"""
BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{12,}")
LOGIN_HEADER = re.compile(r"""(?i)\b((?:authorization|x-api-key)\\?["']?\s*:\s*\\?["']?)[^\s"'][^\n"']*""")
ASSIGNMENT = re.compile(r"""(?<![\w.-])([\w.-]{1,80})\\?["']?\s{0,8}[=:]\s{0,8}""")
"""Name of a variable, before its value. The maximum lengths keep the search time linear."""
VALUE = re.compile(r"""\\?"[^"\n]*(?:"|$)|'[^'\n]*(?:'|$)|[^\s"']+""", re.MULTILINE)
"""Value up to the end of its quotes, else up to the next space or quote."""
VALUE_START_CHARACTERS = 200
"""Number of characters at the start of a value in which the search looks for a secret."""

NamedTexts = Iterator[tuple[str, str]]


def mask(text: str) -> str:
    """Mask tokens, private keys, and the values of variables whose names suggest secrets."""
    text = LOGIN_HEADER.sub(rf"\1{MASK}", WEB_TOKEN.sub(MASK, PRIVATE_KEY.sub(MASK, text)))
    for pattern in TOKEN_PATTERNS.values():
        text = pattern.sub(MASK, text)
    return _mask_assigned(BEARER.sub(rf"\1{MASK}", text))


def _mask_assigned(text: str) -> str:
    """Mask the values of variables whose names suggest secrets."""
    parts, place = [], 0
    while found := ASSIGNMENT.search(text, place):
        end, masked = found.end(), ""
        if start := VALUE.match(text, end, end + VALUE_START_CHARACTERS):
            # Hide assignments inside the value from this check: the next search finds each with its own name.
            value = re.sub("[=:]", "-", start[0].strip("\\\"',;}&"))
            if any(secrets_in_variables({found[1]: value})) and (whole := VALUE.match(text, end)):
                end, masked = whole.end(), MASK
        parts += [text[place : found.end()], masked]
        place = end
    return "".join([*parts, text[place:]])


def without_secrets(value: Any) -> Any:
    """Return nested values with masked texts. Mask the values of SECRET_KEYS completely."""
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and "value" in value:  # a variable of a container
            value = {**value, "value": _mask_by_name(value["name"], value["value"])}
        return {
            key: MASK if key in SECRET_KEYS and each else without_secrets(_mask_by_name(str(key), each))
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return mask(value) if isinstance(value, str) else value


def _mask_by_name(name: str, value: Any) -> Any:
    """Return the value of a key, masked if the key's name suggests a secret."""
    return MASK if isinstance(value, str) and any(secrets_in_variables({name: value})) else value


def bundle_files(stack: str) -> NamedTexts:
    """Yield the name and the text of each file of the bundle. If a file cannot be read, its text is the error."""
    yield "versions.json", _json(_versions())
    yield "doctor.json", _text_or_error(lambda: _json(without_secrets([asdict(each) for each in findings(PROJECT)])))
    yield f"Pulumi.{stack}.yaml", _text_or_error(lambda: _settings(stack))
    yield "outputs.json", _text_or_error(lambda: _json(without_secrets(outputs(stack))))
    yield "state.json", _text_or_error(lambda: _json(without_secrets(_deployment(stack))))
    yield "history.json", _text_or_error(lambda: _json(_history(stack)))
    for file in pulumi_output.logs(stack)[-MAX_PULUMI_LOGS:]:
        yield f"pulumi/{file.name}", _text_or_error(partial(_tail, file))
    yield from _cluster_files(stack)
    folder = stack_cluster(str(PROJECT), stack).folder
    for file in sorted([*folder.glob("cluster.log"), *folder.glob("logs/*.log"), *folder.glob("node-*/logs/*.log")]):
        yield f"local/{file.relative_to(folder)}", _text_or_error(partial(_tail, file))


def _text_or_error(read: Callable[[], str]) -> str:
    try:
        return read()
    except (PulumiFailed, CommandError, OSError, ValueError, KeyError) as error:
        return f"cannot be read: {mask(str(error))}\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("pulumi", "pulumi-kubernetes", "pulumi-gcp", "pulumi-aws", "kubernetes", "pydantic")
    return {
        "trainyard": commit(CHECKOUT),
        "project": "the checkout" if PROJECT == CHECKOUT else commit(PROJECT),
        "python": platform.python_version(),
        "system": " ".join((os.uname().sysname, os.uname().release, os.uname().machine)),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **{name: version(name) for name in names},
    }


def _settings(stack: str) -> str:
    text = (PROJECT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    return yaml.safe_dump(without_secrets(yaml.safe_load(text)), sort_keys=False)


def _deployment(stack: str) -> Any:
    return json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))


def _history(stack: str) -> list[dict[str, Any]]:
    found = json.loads(pulumi("stack", "history", "--json", "--stack", stack, quiet=True))
    kept = ("kind", "startTime", "endTime", "result", "resourceChanges")
    return [{key: each.get(key) for key in kept} for each in found]


def _cluster_files(stack: str) -> NamedTexts:
    """Yield the states of nodes, jobs and pods, the events, and the last lines of each pod's log."""
    from commands.status import take_snapshot

    try:
        found = StackOutputs.of(stack, outputs(stack))
        cluster = found.cluster()
        yield "cluster/status.json", _json(without_secrets(take_snapshot(cluster, found.jobs).as_json()))
        yield "cluster/events.json", _json(without_secrets(cluster.events()))
        pods = sorted(cluster.pods(found.jobs), key=lambda pod: pod.created, reverse=True)
    except (CommandError, KeyError) as error:
        yield "cluster/problem.txt", f"the cluster cannot be queried: {mask(str(error))}\n"
        return
    for pod in pods[:MAX_PODS]:
        try:
            lines = cluster.log(pod, MAX_LOG_LINES)
        except Unreachable as error:
            lines = [f"cannot be read: {error}"]
        yield f"logs/{pod.job}/{pod.name}.log", mask("\n".join(lines)) + "\n"


def _tail(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-MAX_LOG_LINES:]
    return mask("\n".join(lines)) + "\n"


def _has_state(stack: str) -> bool:
    """Return True if the backend has the stack, or if that is unknown."""
    try:
        return stack_exists(stack)
    except (CommandError, FileNotFoundError):
        return True


def bundle(output: Path | None) -> int:
    """Write the archive. Print its path and size. Raises UnknownStack if the stack has no settings and no state."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    settings_file = PROJECT / f"Pulumi.{stack}.yaml"
    if not settings_file.exists() and not _has_state(stack):
        from stack.config import missing_file

        raise UnknownStack(missing_file(settings_file))
    name = f"trainyard-{stack}-{time.strftime('%Y%m%d-%H%M%S')}"
    file = output or Path(f"{name}.tar.gz")
    with output_file(file) as written, tarfile.open(written, "w:gz") as archive:
        for path, text in bundle_files(stack):
            content = text.encode()
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o644
            archive.addfile(entry, io.BytesIO(content))
            print(f"  {path}: {len(content):,} bytes")
    advice = "recognized secrets are masked; check the files before you publish them"
    print(f"{file.resolve()}: {file.stat().st_size:,} bytes; {advice}")
    return 0
