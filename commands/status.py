"""`make status`: a table of the stack's jobs, with their hosts, ranks, nodes, states, last steps and problems."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from commands.interrupts import STILL_RUNNING, CommandError, run_command, set_closing
from commands.monitor.cluster import (
    Cluster,
    ClusterRemoved,
    Forbidden,
    LocalCluster,
    NoKubeconfig,
    StackNotFound,
    UnknownStack,
    Unreachable,
    stack_outputs,
)
from commands.monitor.job_state import JobState
from commands.monitor.logs import Progress
from commands.monitor.pod_state import (
    PodState,
    count_restarts,
    disk_pressure_advice,
    image_pull_advice,
    latest_pods,
    lost_node_advice,
    lost_pods,
    node_line,
)
from commands.monitor.screen import restart_reason
from infra.local.settings import cache_folder
from infra.make_command import DEFAULT_STACK, make_command
from settings.text import wrap
from workloads.kinds import KINDS

TAIL_LINES = 50
"""Number of last lines of each host's log in which to look for its last step."""
MANY_HOSTS = 64
"""Number of pods above which `make status` reads only the log of each job's first host. Also the maximum number of
objects of a job whose warnings it reads."""
WIDTH = 10_000
"""Width of the console without a terminal. It exceeds any table, so that the console cuts no cell."""
HEIGHT = 100
"""Height of the console. Rich keeps the width on a dumb terminal only if the height is set too."""
RESTART_PREFIX = "restarted after"
STDOUT, STDERR = 1, 2
"""File descriptors, which child processes inherit."""
COLUMNS = (
    "job",
    "kind",
    "state",
    "host",
    "rank",
    "node",
    "pod",
    "step",
    "rate",
    "loss",
    "accuracy",
    "restarts",
    "reason",
)
NARROW_COLUMNS = ("rank", "node", "pod", "step", "rate", "loss", "accuracy", "restarts")
"""Columns of a host on a terminal that is narrower than the whole table."""
COLOURS = {"running": "green", "complete": "green", "succeeded": "green", "failed": "red", "absent": "red"}

Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a stack at one moment."""

    nodes: Sequence[tuple[str, bool]]
    """Description of each node, and True if it is ready."""
    nodes_problem: str
    """Reason why the nodes are unknown; empty if they are known."""
    advice: str
    """Remedy for lost nodes, full disks and missing images; empty if there are none."""
    jobs: Sequence[JobState]
    rows: Sequence[Row]

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as plain values. Each host has the columns of the table."""
        hosts = [dict(zip(COLUMNS, row, strict=True)) for row in self.rows]
        return {
            "nodes": [{"text": text, "ready": is_ready} for text, is_ready in self.nodes],
            "jobs": [{**asdict(job), "rows": [each for each in hosts if each["job"] == job.name]} for job in self.jobs],
        }


def take_snapshot(cluster: Cluster, names: Sequence[str]) -> Snapshot:
    """Query the cluster for nodes and jobs."""
    try:
        found_nodes, nodes_problem = cluster.nodes(), ""
    except Forbidden as error:
        found_nodes, nodes_problem = [], f": you have no permission to list them: {error}"
    folder = str(cache_folder()) if LocalCluster.of_kubeconfig(cluster.kubeconfig_path) else ""
    jobs, pods = cluster.jobs(names), cluster.pods(names)
    images = image_pull_advice(pods) if folder else ""
    rows: list[Row] = []
    for job in jobs.values():
        own = [pod for pod in pods if pod.owner == job.uid]
        current = latest_pods(own)
        lost = {} if nodes_problem else lost_pods(current, found_nodes)
        # A log request to a node that does not answer would only wait.
        read = [pod for pod in current if (pod.index == 0 or len(pods) <= MANY_HOSTS) and pod.uid not in lost]
        notes = read_notes(cluster, job, current) | lost
        progress = {pod.uid: _progress(cluster, pod, notes) for pod in read}
        rows += job_rows(job, own, progress, notes)
    return Snapshot(
        nodes=[node_line(node) for node in found_nodes],
        nodes_problem=nodes_problem,
        advice="; ".join(
            filter(None, (lost_node_advice(found_nodes), disk_pressure_advice(found_nodes, folder), images))
        ),
        jobs=list(jobs.values()),
        rows=rows,
    )


def read_notes(cluster: Cluster, job: JobState, pods: list[PodState]) -> dict[str, str]:
    """Return notes about a job's pods and the job itself, by uid.

    The notes are the last warnings of objects that wait without a known reason, and the exit codes of replaced pods.
    """
    waiting = [pod.uid for pod in pods if pod.state in ("pending", "creating") and not pod.reason]
    if not pods and job.uid:
        waiting.append(job.uid)
    notes = {uid: (cluster.warnings(uid) or [""])[-1] for uid in waiting[:MANY_HOSTS]}
    if job.kind in KINDS and KINDS[job.kind].recreates_pods and not job.is_over:
        codes = cluster.exit_codes(job)
        notes |= {pod.uid: f"{RESTART_PREFIX} {pod.exit_text(codes[pod.name])}" for pod in pods if pod.name in codes}
    return notes


def _progress(cluster: Cluster, pod: PodState, notes: dict[str, str]) -> Progress:
    """Return a host's parsed log. If it cannot be read, add the reason to the notes."""
    progress = Progress()
    if pod.has_log:
        try:
            lines = cluster.log(pod, TAIL_LINES)
        except Unreachable as error:
            # The API server has answered before, so only this pod's node does not answer.
            lines, notes[pod.uid] = [], f"its log cannot be read: {error}"
        for line in lines:
            progress.read(line)
    return progress


def job_rows(
    job: JobState, pods: Sequence[PodState], progress: dict[str, Progress], notes: dict[str, str]
) -> list[Row]:
    """Return a row for each host of a job, or one row if it has none. The keys of `progress` and `notes` are uids."""
    current = latest_pods(pods)
    reason = job.reason or notes.get(job.uid, "")
    if job.state == "suspended":
        reason = f"stopped; {make_command('resume', JOB=job.name)} continues it"
    head = (job.name, job.kind, job.state)
    if not current:
        return [(*head, *[""] * (len(COLUMNS) - 4), reason)]
    rows: list[Row] = []
    for pod in current:
        host_progress = progress.get(pod.uid, Progress())
        earlier = count_restarts(each for each in pods if each.place == pod.place)
        restarts = max(earlier, int(host_progress.value("number", "restart") or 0))
        backoff = "" if job.is_over else pod.backoff(earlier)
        notes_of_pod = pod.why, backoff, notes.get(pod.uid) or _last_failure(pod, pods, host_progress)
        why = "; ".join(filter(None, notes_of_pod)) or (reason if not rows else "")
        rows.append(
            (*head, pod.name, pod.label, pod.node, pod.state, *_progress_cells(host_progress), str(restarts), why)
        )
    return rows


def _last_failure(pod: PodState, pods: Sequence[PodState], progress: Progress) -> str:
    """Return the reason of the last restart in a pod, or of the failure of its predecessor; else an empty text."""
    if pod.is_over:
        return ""
    if event := progress.latest.get("restart"):
        return restart_reason(pod, event)
    before = [each for each in pods if each.place == pod.place and each.uid != pod.uid and each.state == "failed"]
    newest = max(before, key=lambda each: each.created, default=None)
    return "" if newest is None else f"{RESTART_PREFIX} {newest.why}"


def _progress_cells(progress: Progress) -> Row:
    train = progress.latest.get("train")
    tested = progress.value("test_accuracy", "done") or progress.value("accuracy", "test")
    accuracy = f"test {tested}" if tested else progress.value("accuracy", "train")
    return train.place if train else "", progress.value("rate", "train"), progress.value("loss", "train"), accuracy


def render(rows: Sequence[Row], names: Sequence[str] = COLUMNS, *, folds: Collection[str] = ("reason",)) -> Table:
    """Return a table of the columns `names`, except empty columns. Only the columns in `folds` may wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown = [place for place, name in enumerate(COLUMNS) if name in names and any(row[place] for row in rows)]
    for place in shown:
        table.add_column(COLUMNS[place], overflow="fold", no_wrap=COLUMNS[place] not in folds)
    for row in rows:
        table.add_row(*(Text(row[place], style=COLOURS.get(row[place], "")) for place in shown))
    return table


def render_narrow(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """Yield a line, a table and the hosts' reasons for each job, for a terminal that is narrower than one table."""
    for name, group in groupby(rows, key=lambda row: row[0]):
        of_job = list(group)
        line = Text(f"{name}  {of_job[0][1]}  ", style="bold")
        yield line.append(of_job[0][2], style=COLOURS.get(of_job[0][2], ""))
        table = render(of_job, NARROW_COLUMNS, folds=NARROW_COLUMNS)
        if table.columns:
            yield table
        for host in (dict(zip(COLUMNS, row, strict=True)) for row in of_job):
            if host["reason"]:
                place = f"{host['rank']}: " if host["rank"] else ""
                yield Padding(Text(f"{place}{host['reason']}", style="yellow"), (0, 0, 0, 2))


def without_padding(console: Console, part: RenderableType) -> SegmentLines:
    """Return the lines of a table or text, without trailing spaces."""
    lines = []
    for line in console.render_lines(part, pad=False):
        kept = list(line)
        while kept and not kept[-1].text.strip():
            kept.pop()
        if kept:
            kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
        lines.append(kept)
    return SegmentLines(lines, new_lines=True)


def print_snapshot(snapshot: Snapshot, out: TextIO) -> None:
    """Print nodes and jobs."""
    terminal = shutil.get_terminal_size().columns if out.isatty() else WIDTH
    console = Console(file=out, width=terminal, height=HEIGHT, highlight=False, markup=False, emoji=False)
    ready = sum(is_ready for _, is_ready in snapshot.nodes)
    nodes_text = snapshot.nodes_problem or f": {ready} of {len(snapshot.nodes)} ready"
    lines = [Text(f"nodes{nodes_text}", style="green" if ready == len(snapshot.nodes) else "red")]
    lines += [Text(wrap(f"  {words}", out), style="" if is_ready else "red") for words, is_ready in snapshot.nodes]
    if snapshot.advice:
        lines.append(Text(wrap(f"  {snapshot.advice}", out), style="red"))
    console.print(Group(*lines), soft_wrap=True)
    if snapshot.rows:
        console.print()
        table = render(snapshot.rows)
        if console.measure(table, options=console.options.update(max_width=WIDTH)).maximum <= terminal:
            console.print(without_padding(console, table))
        else:
            for part in render_narrow(snapshot.rows):
                console.print(without_padding(console, part))
    else:
        console.print("the stack has no jobs")


def main(*, as_json: bool = False) -> int:
    """Print the state of the stack. Return 0, even if the stack is not up."""
    set_closing(STILL_RUNNING)
    found = read_snapshot()
    if as_json:
        print(json.dumps(document(found), indent=2))
    elif isinstance(found, str):
        print(found)
    else:
        print_snapshot(found, sys.stdout)
    return 0


def with_status(command: Callable[[], int], *, as_json: bool, removes_stack: bool = False) -> int:
    """Run a command and return its exit status.

    With `as_json`, send its output and that of its child processes to stderr. Then print the state of the stack to
    stdout. If a command that `removes_stack` succeeds, omit the problem that the stack is not up.
    """
    if not as_json:
        return command()
    sys.stdout.flush()
    original = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            status = command()
    finally:
        os.dup2(original, STDOUT)
        os.close(original)
    try:
        state = document(read_snapshot())
    except UnknownStack as error:
        state = document(str(error))  # The command has printed the error.
    if removes_stack and status == 0:
        state.pop("problem", None)
    print(json.dumps(state, indent=2))
    return status


def document(found: Snapshot | str) -> dict[str, Any]:
    """Return the state of the stack for `--json`."""
    state = {"up": False, "problem": found} if isinstance(found, str) else {"up": True, **found.as_json()}
    return {"stack": os.environ.get("STACK", DEFAULT_STACK), **state}


def read_snapshot() -> Snapshot | str:
    """Return the state of the stack, or the reason why it has none."""
    try:
        found = stack_outputs()
        return take_snapshot(found.cluster(), found.jobs)
    except StackNotFound as error:
        return str(error)
    except ClusterRemoved as error:
        return error.report()
    except NoKubeconfig:
        raise
    except Forbidden as error:
        raise CommandError(f"{error}; get permission to read jobs, pods, logs and events of that namespace") from error
    except Unreachable as error:
        return error.report()


if __name__ == "__main__":
    sys.exit(run_command("make status", main))
