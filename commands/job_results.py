"""Jobs of `up`, `resume` and `rerun`: follow them to their end, show their results, and write their run records.

`make up` imports this module late, because importing the Kubernetes client is slow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from commands.bucket import FOLDER_SCHEME, RECORD_FILE, Bucket, BucketError
from commands.follow import TAIL_LINES, follow
from commands.interrupts import CommandError, ExitStatus
from commands.monitor.cluster import Cluster, StackOutputs, Unreachable
from commands.monitor.job_state import JobState
from commands.monitor.logs import Progress
from commands.monitor.pod_state import PodState, latest_pods, seconds_between
from commands.monitor.screen import Detail, Screen, format_seconds, state_after, summary
from commands.pulumi_output import is_verbose
from infra.make_command import make_command
from settings.text import wrap, wrap_line
from stack.config import StackConfig
from workloads.trainer_flags import FLAGS

WRITE_COMMANDS = {"gs": ("gcloud", "storage", "cp"), "s3": ("aws", "s3", "cp")}
"""Scheme of a bucket in a cloud -> command that writes a file to it."""
MIN_RULE_WIDTH = 40
"""Minimum number of characters of the box's top and bottom lines, if the terminal is wide enough."""
LABEL_WIDTH = 10
"""Minimum number of characters of the first column of the box."""


class WriteFailed(RuntimeError):
    """Run record that cannot be written. The message gives the target and the reason."""


def unfollowed(config: StackConfig) -> dict[str, str]:
    """Return the jobs that do not end by themselves, each with the reason and advice."""
    found = {
        job.name: f"interactive; {make_command('exec', JOB=job.name, RANK='0')} opens a shell in a host"
        for job in config.jobs
        if job.interactive
    }
    return found | {job.name: "suspended; `suspend: false` starts it" for job in config.jobs if job.suspend}


def deleted_jobs(stack: str, outputs: Mapping[str, Any]) -> list[str]:
    """Return the jobs that are in the stack's outputs but not in the cluster.

    An update recreates them only after a refresh.
    """
    try:
        found = StackOutputs.of(stack, outputs).cluster().jobs(outputs["jobs"])
    except Unreachable:
        return []  # The follower waits for the API server.
    # A job with a reason may exist: the user may lack permission to list its kind.
    return [name for name, job in found.items() if job.state == "absent" and not job.reason]


def follow_jobs(
    stack: str, config: StackConfig, outputs: Mapping[str, Any], before: str, only: Sequence[str] | None = None
) -> tuple[int, bool]:
    """Follow the jobs, or only the jobs in `only`, and write their run records.

    If a job ended before the time `before`, only print its result. Return the exit status, and True if all of the jobs
    exist. The second value is False after Ctrl-C, or if the API server does not answer.
    """
    found = StackOutputs.of(stack, outputs)
    names = list(only) if only is not None else [name for name in found.jobs if name not in unfollowed(config)]
    finished, stopped = dict[str, str](), list[str]()
    with suppress(Unreachable):  # The follower waits for the API server.
        finished = report_finished(found.cluster(), config, outputs, names, before)
        stopped = report_stopped(found.cluster(), names) if only is None else []
    status, results = int("failed" in finished.values()), dict[str, str]()
    followed = [name for name in names if name not in finished and name not in stopped]
    update_records(found, config, outputs, followed)
    if followed or not found.jobs:
        detail = Detail.ALL if is_verbose() else Detail.READABLE
        screen = Screen(sys.stdout, detail=detail)
        status = follow(found, followed, screen, _up_command(), epochs=epochs_of(config), results=results) or status
    if status == ExitStatus.INTERRUPTED:
        return status, False
    try:
        jobs = found.cluster().jobs(names)
    except Unreachable:
        for name, result in results.items():
            print(f"{name}: {result}")
        return status or 1, False
    over = {name: job for name, job in jobs.items() if job.is_over}
    records = write_records(over, outputs, is_cluster_local=config.cloud.nodes_here > 0, is_quiet=not is_verbose())
    ended = [
        job_result(job, results.get(name, ""), config, outputs, records[name])
        for name, job in over.items()
        if name in followed
    ]
    if ended and not is_verbose():
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        show_box(ended, seconds_between(before, now), sys.stdout)
    return status, all(job.state != "absent" for job in jobs.values())


def record_jobs(stack: str, config: StackConfig, outputs: Mapping[str, Any]) -> None:
    """Write the first run records of the jobs, and print how to follow them."""
    found = StackOutputs.of(stack, outputs)
    update_records(found, config, outputs, [name for name in found.jobs if name not in unfollowed(config)])
    follows = f"; {make_command('logs', STACK=stack)} follows its jobs" if found.jobs else ""
    print(f"stack {stack} is up{follows}")


def update_records(found: StackOutputs, config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str]) -> None:
    """Write the current run records of jobs. A later update then keeps the commit and settings in each record."""
    with suppress(Unreachable):  # `follow_jobs`, at the end of the jobs, or `fetch` writes them.
        begun = {name: job for name, job in found.cluster().jobs(names).items() if job.state != "absent"}
        write_records(begun, outputs, is_cluster_local=config.cloud.nodes_here > 0, is_quiet=True)


def epochs_of(config: StackConfig) -> dict[str, int]:
    """Return job -> number of epochs, for the jobs whose recipe has the flag `epochs`."""
    found = {
        job.name: job.flag("epochs") or FLAGS[job.recipe]["epochs"].default
        for job in config.jobs
        if job.recipe and "epochs" in FLAGS[job.recipe]
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}


def report_stopped(cluster: Cluster, names: Iterable[str]) -> list[str]:
    """Print the jobs that are stopped. Return their names."""
    stopped = [name for name, job in cluster.jobs(list(names)).items() if job.state == "suspended"]
    for name in stopped:
        print(f"{name}: stopped before this command; {make_command('resume', JOB=name)} continues it")
    return stopped


def report_finished(
    cluster: Cluster, config: StackConfig, outputs: Mapping[str, Any], names: Iterable[str], before: str
) -> dict[str, str]:
    """Print the results of the jobs that ended before the time `before`. Return the states of these jobs by name."""
    finished = {name: job for name, job in cluster.jobs(list(names)).items() if job.is_over and job.finished < before}
    pods = cluster.pods(list(finished)) if finished else []
    scripts = {job.name for job in config.jobs if job.script is not None}
    can_fetch = not Bucket.of(outputs, is_cluster_local=config.cloud.nodes_here > 0).problem
    for name, job in finished.items():
        record, bucket = outputs["run_records"][name], str(outputs["bucket_url"])
        own = [pod for pod in pods if pod.owner == job.uid]
        progress, is_script = _progress(cluster, own), name in scripts
        lines = finished_lines(job, own, record, bucket, is_script=is_script, can_fetch=can_fetch, progress=progress)
        print(wrap("\n".join(lines), sys.stdout))
    return {name: job.state for name, job in finished.items()}


def _progress(cluster: Cluster, pods: Iterable[PodState]) -> Progress:
    """Return the progress in the last lines of the first host, if its pod still exists."""
    progress = Progress()
    for pod in latest_pods(pods):
        if pod.index == 0 and pod.has_log:
            with suppress(Unreachable):
                for line in cluster.log(pod, TAIL_LINES):
                    progress.read(line)
    return progress


def _up_command() -> str:
    return make_command("up", JOB=os.environ.get("JOB", ""))


def finished_lines(
    job: JobState,
    pods: Sequence[PodState],
    record: Mapping[str, Any],
    bucket: str,
    *,
    is_script: bool,
    can_fetch: bool = True,
    progress: Progress | None = None,
) -> list[str]:
    """Return a job's result, the location of its output, and the next steps; `record` is its run record.

    `can_fetch` is False if this machine cannot reach the bucket. The bucket then has no run record.
    """
    first, *more = summary(job, list(pods), progress, {})
    folder, checkpoints = f"{bucket}/{record['bucket_prefix']}", f"{bucket}/{record['checkpoints']}"
    logs, fetch = make_command("logs", JOB=job.name), make_command("fetch", JOB=job.name)
    steps, files, copied = _trainer_steps(job), "run record and metrics", "checkpoints and metrics"
    if is_script:
        files, copied = "run record", "results"
        again = make_command("rerun", JOB=job.name)
        steps = [f"to run it again: {again}, or change its script or settings, then {_up_command()}"]
    if not can_fetch:
        files = "results" if is_script else "metrics"
    return [
        f"{first}; it ended at {job.finished}, before this command",
        *more,
        "  it was not started again, because nothing that its pods depend on has changed",
        f"  {files}: {folder}; checkpoints: {checkpoints}",
        f"  {logs} shows its log" + (f"; {fetch} copies its {copied}" if can_fetch else ""),
        *(f"  {step}" for step in steps),
    ]


def _trainer_steps(job: JobState) -> list[str]:
    """Return the next steps for a trainer's job, which resumes from the last checkpoint in its folder."""
    from_start = f"to train from the beginning: {make_command('rerun', JOB=job.name, FRESH='1')}"
    if job.state == "complete":
        return [
            f"to train further from its last checkpoint: raise `epochs` in its `flags` and run {_up_command()}",
            from_start,
        ]
    again = make_command("rerun", JOB=job.name)
    return [f"to continue from its last checkpoint: {again}, or change the settings, then {_up_command()}", from_start]


def write_records(
    jobs: Mapping[str, JobState], outputs: Mapping[str, Any], *, is_cluster_local: bool, is_quiet: bool = False
) -> dict[str, dict[str, Any]]:
    """Write the run record of each job into the bucket, if this machine can. Return the records.

    `is_quiet`: print only failures.
    """
    bucket = Bucket.of(outputs, is_cluster_local=is_cluster_local)

    def write(name: str) -> tuple[dict[str, Any], str]:
        planned, job = outputs["run_records"][name], jobs[name]
        record = complete_record(planned, job)
        try:
            if not bucket.problem:
                record = complete_record(recorded(bucket, planned, job), job)
                return record, write_record(bucket.url, record)
        except (BucketError, WriteFailed) as error:
            print(f"warning: {name}: the run record is only in the output `run_records`: {error}", file=sys.stderr)
        return record, ""

    # For a bucket in a cloud, each record takes two or three commands, and each command some seconds.
    with ThreadPoolExecutor(max_workers=8) as pool:
        written = dict(zip(jobs, pool.map(write, jobs), strict=True))
    for name, (record, place) in written.items():
        if place and not is_quiet:
            print(f"{name}: run record in {place}")
            fetch = make_command("fetch", JOB=name)
            print(f"{name}: checkpoints in {bucket.url}/{record['checkpoints']}; {fetch} copies them")
            print(f"{name}: {make_command('report', JOB=name)} writes a page with its curves, restarts and price")
    return {name: record for name, (record, _) in written.items()}


def recorded(bucket: Bucket, planned: Mapping[str, Any], job: JobState) -> Mapping[str, Any]:
    """Return the record of the job's run in the bucket. If there is none, return `planned`, the record in the outputs.

    The outputs may not describe this run: every update replaces them, even if the job continues. Raises BucketError.
    """
    text = "" if bucket.problem else bucket.read(f"{planned['bucket_prefix']}/{RECORD_FILE}")
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return planned
    return found if isinstance(found, dict) and found.get("uid") == job.uid else planned


def complete_record(record: Mapping[str, Any], state: JobState) -> dict[str, Any]:
    """Return the record with the job's UID, state, hours, chip-hours and hosts' cost in US dollars."""
    seconds = seconds_between(state.started, state.finished)
    hours = None if seconds is None else seconds / 3600
    price = record["usd_per_hour"]
    return {
        **record,
        "uid": state.uid,
        "state": state.state,
        "started": state.started,
        "finished": state.finished,
        "hours": None if hours is None else round(hours, 4),
        "chip_hours": None if hours is None else round(hours * record["chips"], 4),
        "usd": None if hours is None or price is None else round(hours * price, 4),
    }


def write_record(bucket: str, record: Mapping[str, Any]) -> str:
    """Write the record into its job's folder of the bucket. Return its URL. Raises WriteFailed.

    Not yet tested in a cloud.
    """
    target, text = f"{bucket.rstrip('/')}/{record['bucket_prefix']}/{RECORD_FILE}", json.dumps(record, indent=2)
    scheme, _, path = target.partition("://")
    try:
        if scheme == FOLDER_SCHEME:
            _write_file(Path(path), text)
        else:
            subprocess.run(
                [*WRITE_COMMANDS[scheme], "-", target], input=text, text=True, check=True, capture_output=True
            )
    except (OSError, subprocess.CalledProcessError) as error:
        # Only programs have `stderr`.
        reason = " ".join((getattr(error, "stderr", None) or str(error)).split())
        raise WriteFailed(f"{target}: cannot be written: {reason}") from error
    return target


def _write_file(path: Path, text: str) -> None:
    """Write a file. The file and its folder, which may be new, get the owner of the folder above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = path.parent.parent.stat()
    # Change the folder's owner first, because the job may soon write to the folder.
    os.chown(path.parent, owner.st_uid, owner.st_gid)
    path.write_text(text, encoding="utf-8")
    os.chown(path, owner.st_uid, owner.st_gid)


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Rows of one job in the box that `show_box` prints."""

    job: JobState
    result: str
    """Result of its training; empty if unknown."""
    checkpoint: str
    """Location of its newest checkpoint, as text."""
    cost: str
    """Cost of its hosts, as text."""
    is_script: bool = False
    can_fetch: bool = True
    """False if this machine cannot reach its bucket."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of each row."""
        reason = f": {self.job.reason}" if self.job.reason and self.job.state == "failed" else ""
        yield self.job.name, f"{state_after(self.job)}{reason}"
        if self.result:
            yield "result", self.result
        yield "checkpoint", self.checkpoint
        yield "cost", self.cost


def job_result(
    job: JobState, result: str, config: StackConfig, outputs: Mapping[str, Any], record: Mapping[str, Any]
) -> JobResult:
    """Return the rows of a job in the box. `record` is its complete run record."""
    is_script = any(spec.name == job.name and spec.recipe is None for spec in config.jobs)
    bucket = Bucket.of(outputs, is_cluster_local=config.cloud.nodes_here > 0)
    return JobResult(
        job=job,
        result=result,
        checkpoint=checkpoint_text(bucket, str(record["checkpoints"])),
        cost=cost_text(config, record.get("usd"), is_resumed=job.is_resumed),
        is_script=is_script,
        can_fetch=not bucket.problem,
    )


def checkpoint_text(bucket: Bucket, folder: str) -> str:
    """Return the path of the newest checkpoint in a folder; the folder's URL if the cluster is not on this machine."""
    if not bucket.is_cluster_local:
        return bucket.location(folder) if bucket.url else "in the job's volume"
    try:
        names, newest = bucket.names(folder), bucket.newest_checkpoint(folder)
    except (CommandError, OSError):
        return short_home(bucket.location(folder))
    if not names:
        return "none was saved"
    return short_home(f"{bucket.location(folder)}{f'/{newest}' if newest else ''}")


def cost_text(config: StackConfig, usd: float | None, *, is_resumed: bool = False) -> str:
    """Return the cost of a job's hosts, and the hourly cost of the stack."""
    if config.cloud.nodes_here:
        return "nothing: it ran on this machine"
    if not config.cloud.provisioned:
        return "unknown: the cluster is not Trainyard's"
    hourly = config.cloud.cost_estimate().total.amount
    since = " since its last start" if is_resumed else ""
    spent = f"about ${usd:,.2f} for its hosts{since}" if usd is not None else "unknown: its hosts have no known price"
    return f"{spent}; the stack costs up to ${hourly:,.2f} an hour until you remove it"


def next_commands(results: Sequence[JobResult]) -> list[tuple[str, str]]:
    """Return the next commands, as the user types them, each with its purpose.

    The commands are about the first job that is not complete, or else about the first job.
    """
    failed = next((each for each in results if each.job.state != "complete"), None)
    found = failed or results[0]
    name = found.job.name
    down = (_unquoted("down"), "remove the stack")
    if failed:
        return [
            (_unquoted("logs", JOB=name), "show all of its log"),
            (_unquoted("rerun", JOB=name), "run it again" + ("" if found.is_script else ", from its last checkpoint")),
            down,
        ]
    page, copies = ("the run", "its results") if found.is_script else ("its curves", "checkpoint and metrics")
    fetch = [(_unquoted("fetch", JOB=name), f"copy {copies} here")] if found.can_fetch else []
    return [(_unquoted("report", JOB=name), f"write a page with {page}"), *fetch, down]


def _unquoted(target: str, **variables: str) -> str:
    return make_command(target, **variables).strip("`")


def show_box(results: Sequence[JobResult], seconds: float | None, out: TextIO) -> None:
    """Print the results of jobs, the command's duration and the next commands. A terminal shows them in a box."""
    rows = [row for place, each in enumerate(results) for row in ([("", "")] if place else []) + list(each.rows())]
    if seconds is not None:
        rows.append(("command", f"took {format_seconds(seconds)}"))
    width = max([LABEL_WIDTH, *(len(label) for label, _ in rows)])
    columns = shutil.get_terminal_size().columns - len("| ") - 1 if out.isatty() else 1000
    rows += [("" if place else "next", text) for place, text in enumerate(_command_lines(results, columns - width - 2))]
    lines = [line for label, text in rows for line in _box_lines(f"{label:{width}}  ", text, columns)]
    if not out.isatty():
        print("", *lines, sep="\n", file=out, flush=True)
        return
    # The box has no right edge, so that the user can copy a long path in one piece.
    rule = "─" * min(columns, max(MIN_RULE_WIDTH, *(len(line) for line in lines)))
    print("", f"╭─{rule}", *(f"│ {line}" for line in lines), f"╰─{rule}", sep="\n", file=out, flush=True)


def _box_lines(label: str, text: str, columns: int) -> list[str]:
    """Return the lines of a row, broken at spaces. A path that does not fit next to its label has its own line."""
    first, *rest = wrap_line(text, columns - len(label))
    indent = " " * len(label)
    lines = [f"{label}{first}".rstrip()] if len(label + first) <= columns else [label.rstrip(), first]
    return lines + [f"{indent}{each}" if len(indent + each) <= columns else each for each in rest]


def _command_lines(results: Sequence[JobResult], columns: int) -> list[str]:
    """Return the next commands, with their purposes if all lines fit."""
    found = next_commands(results)
    longest = max(len(command) for command, _ in found)
    lines = [f"{command:{longest}}  {why}" for command, why in found]
    return lines if max(map(len, lines)) <= columns else [command for command, _ in found]


def short_home(path: str) -> str:
    """Return a path with `~` for the user's home folder, as a shell reads it. With sudo, return the whole path."""
    home = str(Path.home())
    if "SUDO_USER" in os.environ:  # The folder is root's, but the user's shell would read `~` as the user's own.
        return path
    return f"~{path.removeprefix(home)}" if path.startswith(home + os.sep) else path
