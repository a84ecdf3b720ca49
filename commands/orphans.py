"""Leftover processes of a dead `pulumi`: its language host and providers, marked by an environment variable."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from infra.local import leftovers

RUN = "TRAINYARD_RUN"
"""Environment variable of every process of a `pulumi` run: `<checkout folder>:<stack>`."""
ENGINE = "pulumi"
GRACE_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    name: str


def run_mark(checkout: Path, stack: str) -> str:
    """Return the variable's value for a stack of a checkout."""
    return f"{checkout}:{stack}"


def end_orphans(mark: str) -> int:
    """End the processes of runs whose `pulumi` is dead. Return their number."""
    orphans = orphans_of(mark)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in orphans_of(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while orphans_of(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
    return len(orphans)


def orphans_of(mark: str) -> list[int]:
    """Return the processes with the mark that have no living `pulumi` with that mark as an ancestor."""
    marked = {each.pid: each for each in _marked(mark)}
    return [pid for pid in marked if not _has_engine(pid, marked)]


def _has_engine(pid: int, marked: dict[int, _Process]) -> bool:
    while pid in marked:
        if marked[pid].name == ENGINE:
            return True
        pid = marked[pid].parent
    return False


def _marked(mark: str) -> list[_Process]:
    """Return the processes with the mark. Leave out a local cluster, which outlives the run that started it."""
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            if f"{RUN}={mark}".encode() not in variables:
                continue
            if any(each.startswith(f"{leftovers.CLUSTER_VARIABLE}=".encode()) for each in variables):
                continue
            name, _, rest = (entry / "stat").read_text(encoding="utf-8").partition(" (")[2].rpartition(") ")
        except (OSError, UnicodeDecodeError):
            continue  # The process ended meanwhile, or belongs to another user.
        found.append(_Process(pid=int(entry.name), parent=int(rest.split()[1]), name=name))
    return found
