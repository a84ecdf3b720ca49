"""Report about one job: read its content from the cluster and the bucket, then print JSON or write an HTML page."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from commands.bucket import EARLIER_FOLDER, OUTPUTS, Bucket, fresh_start
from commands.dashboard.metrics import last_train_event, parse_lines
from commands.environment import PROJECT
from commands.follow import TAIL_LINES
from commands.interrupts import CommandError
from commands.job_results import complete_record, recorded, short_home
from commands.monitor.cluster import Cluster, StackOutputs, Unreachable, job_named, outputs_with
from commands.monitor.job_state import JobState
from commands.monitor.logs import parse_event
from commands.monitor.pod_state import PodState, count_restarts, latest_pods, time_of
from commands.monitor.screen import summary
from commands.output_file import output_file
from commands.run_times import RunTimes, times_of
from commands.stack_settings import read_settings
from infra.make_command import DEFAULT_STACK, make_command
from stack.config import StackConfig

REPORT_FILE = "report.html"
MAX_FAILED_HOSTS = 64
"""Maximum number of failed hosts whose last lines a report reads."""
TROUBLE_KINDS = frozenset({"failure", "preemption", "restart"})
"""Kinds of events (`job_events` in commands/dashboard/document.py) that a report lists with their reasons."""
LIFE_EVENTS = frozenset({"start", "resume", "checkpoint", "restart", "done"})
"""Names of events that mark the progress of a run. Other events, such as `train`, are points of curves."""

RANK_NAME = re.compile(r"rank-(\d+)(\.jsonl)?")
"""Name of a rank's file of metrics, or of its folder in an object store."""

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """Content of a report."""

    stack: str
    job: str
    state: JobState
    record: Mapping[str, Any]
    """Run record with the result, the hours and the price."""
    settings: str
    """Settings of the job as YAML."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """Part of the platform -> US dollars an hour, at the maximum number of nodes."""
    events: list[Event] = field(default_factory=list)
    """Events of rank 0, oldest first."""
    ranks: Mapping[int, Event] = field(default_factory=dict)
    """Rank -> its last `train` event."""
    rank_states: Mapping[int, str] = field(default_factory=dict)
    """Rank -> the state of its host."""
    restarts: int = 0
    """Restarts that the cluster reports since the job's last start."""
    troubles: Sequence[tuple[float, str]] = ()
    """Time and reason of each restart and failure that the cluster still knows, oldest first."""
    end: Sequence[str] = ()
    """End of each rank of a failed job, and the last lines of the rank that failed first."""
    newest_checkpoint: str = ""
    """Path or URL of the newest checkpoint; empty if no checkpoint is known. If the checkpoints' names do not show the
    newest, path or URL of their folder."""
    fresh_start: str = ""
    """Time of the last `rerun --fresh` that moved earlier curves to another folder; empty if there was none."""
    written: str = ""
    """Time of the report."""
    until: float | None = None
    """Seconds since 1970 at the end of the job, or now if it has not ended. None stands for the last event's time."""

    def curve(self, name: str, key: str) -> list[tuple[float, float]]:
        """Return the step and the value `key` of each event `name`. Drop points that a restarted run repeats."""
        found: list[tuple[float, float]] = []
        for event in self.events:
            step, value = event.get("global_step"), event.get(key)
            if event["event"] == name and step is not None and isinstance(value, int | float):
                place = float(step)
                while found and found[-1][0] >= place:
                    found.pop()
                found.append((place, float(value)))
        return found

    def events_named(self, *names: str) -> list[Event]:
        """Return the events with these names, oldest first."""
        return [event for event in self.events if event["event"] in names]

    @cached_property
    def started(self) -> float | None:
        """Time at which Kubernetes last started the job; None if unknown."""
        return time_of(self.record.get("started") or "")

    @cached_property
    def times(self) -> RunTimes:
        """Time of the job's runs by cause."""
        return times_of(self.events, self.started, time_of(self.state.created))

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """Seconds of the job's runs by cause."""
        return self.times.seconds_by_cause(self.until)

    @property
    def earlier_attempts(self) -> int:
        """Number of known attempts before the job's last start."""
        return sum(
            self.started is not None and float(each["time"]) < self.started for each in self.events_named("start")
        )

    @property
    def attempts(self) -> int:
        """Number of known attempts. The cluster knows of a restart before the rank prints its new `start`."""
        return max(len(self.events_named("start")), self.earlier_attempts + self.restarts + 1)

    @property
    def is_partial(self) -> bool:
        """True if the job was stopped before, and the events of its earlier attempts are unknown."""
        return self.state.is_resumed and not self.earlier_attempts

    def as_json(self) -> dict[str, Any]:
        """Return the numbers of the report."""
        done = self.events_named("done")
        train = [event for event in self.events if event["event"] == "train"]
        return {
            "stack": self.stack,
            "job": self.job,
            **self.record,
            "attempts": self.attempts,
            "attempts_since_last_start_only": self.is_partial,
            "fresh_start": self.fresh_start or None,
            "seconds_by_cause": {cause: round(each, 1) for cause, each in self.seconds.items()},
            "restart_reasons": [text for _, text in self.troubles],
            "end": list(self.end),
            "newest_checkpoint": self.newest_checkpoint,
            "checkpoints_saved": len(self.events_named("checkpoint")),
            "last": train[-1] if train else None,
            "result": done[-1] if done else None,
        }


def read_events(folder: Path) -> list[Event]:
    """Return the events of rank 0 in a folder of metrics, oldest first. Rank 0 has one file, or one for each upload."""
    files = sorted(file for file in folder.rglob("*.jsonl") if file.relative_to(folder).parts[0].startswith("rank-0"))
    events = [event for file in files for event in parse_lines(file.read_bytes())]
    return sorted(events, key=lambda event: float(event["time"]))


def last_events(folder: Path) -> dict[int, Event]:
    """Return the last `train` event of each rank in a folder of metrics."""
    found = {}
    for path in folder.iterdir():
        if (match := RANK_NAME.fullmatch(path.name)) is None:
            continue
        for file in sorted(path.glob("*.jsonl"), reverse=True) if path.is_dir() else [path]:
            if event := last_train_event(file):
                found[int(match[1])] = event
                break
    return found


def events_of_log(lines: Iterable[tuple[str, str]]) -> list[Event]:
    """Return rank 0's events in a log's lines, each with its time. A script may print events but write no metrics."""
    found = [event_of_line(stamp, text) for stamp, text in lines]
    return [event for event in found if event is not None and event.get("rank", 0) == 0]


def event_of_line(stamp: str, text: str) -> Event | None:
    """Return the event in a line of a log, in the format of the metrics; None for other text."""
    event = parse_event(text)
    if event is None:
        return None
    values = {key: found for key, value in event.fields.items() if (found := _number(value)) is not None}
    if event.name not in LIFE_EVENTS and event.global_step:
        values["global_step"] = event.global_step[0]
        if event.global_step[1]:
            values["global_steps"] = event.global_step[1]
    time_of_line = datetime.fromisoformat(f"{stamp[:19]}+00:00").timestamp()
    return {**event.fields, **values, "event": event.name, "time": time_of_line}


def _number(text: str) -> float | None:
    """Return the first number in a text such as `12`, `12.5` or `12/63`; None for other text."""
    first = text.partition("/")[0]
    for read in (int, float):
        with suppress(ValueError):
            return read(first)
    return None


def collect(stack: str, name: str) -> tuple[JobReport, Bucket]:
    """Return the report of a job, and the bucket of its stack."""
    found = outputs_with(stack, *OUTPUTS)
    outputs = StackOutputs.of(stack, found)
    job = job_named(outputs, name, "report")
    config = read_settings(PROJECT / f"Pulumi.{stack}.yaml")
    bucket = Bucket.of(found, is_cluster_local=config.cloud.nodes_here > 0)
    cluster = outputs.cluster()
    state = cluster.jobs([job])[job]
    record = recorded(bucket, found["run_records"][job], state)
    folder = str(record["bucket_prefix"])
    events, ranks = _metrics(bucket, folder)
    pods = [pod for pod in cluster.pods([job]) if pod.owner == state.uid]
    printed = log_events(cluster.stamped_log, pods)
    return (
        JobReport(
            stack=stack,
            job=job,
            state=state,
            record=complete_record(record, state),
            settings=_settings(config, job),
            prices={part: money.amount for part, money in config.cloud.cost_estimate().by_part().items()},
            events=events or printed,
            ranks=ranks,
            rank_states={rank: pod.state for pod in latest_pods(pods) for rank in pod.ranks},
            restarts=known_restarts(pods, printed),
            troubles=known_troubles(pods, printed),
            end=failed_end(cluster, state, pods),
            newest_checkpoint=newest_checkpoint(bucket, str(record["checkpoints"])),
            fresh_start="" if bucket.problem else fresh_start(bucket.names(f"{folder}/{EARLIER_FOLDER}")),
            written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            until=state.known_until(time.time()),
        ),
        bucket,
    )


def _settings(config: StackConfig, job: str) -> str:
    """Return a job's settings that differ from the defaults; empty for a job that is not in the file."""
    spec = next((each for each in config.jobs if each.name == job), None)
    return yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=False) if spec else ""


def _metrics(bucket: Bucket, folder: str) -> tuple[list[Event], dict[int, Event]]:
    """Return rank 0's events and each rank's last `train` event; empty if this machine cannot reach the bucket."""
    if bucket.problem or "metrics" not in bucket.names(folder):
        return [], {}
    if bucket.is_cluster_local:
        found = Path(bucket.location(f"{folder}/metrics"))
        return read_events(found), last_events(found)
    with tempfile.TemporaryDirectory(prefix="trainyard-report-") as copied:
        copy_metrics(bucket, f"{folder}/metrics", Path(copied))
        return read_events(Path(copied)), last_events(Path(copied))


def copy_metrics(bucket: Bucket, folder: str, to: Path) -> None:
    """Copy the metrics of rank 0, and the two newest files of each other rank, which may have thousands."""

    def copy_newest(rank: str) -> None:
        (to / rank).mkdir()
        for name in bucket.names(f"{folder}/{rank}")[-2:]:
            (to / rank / name).write_text(bucket.read(f"{folder}/{rank}/{name}"), encoding="utf-8")

    ranks = [name for name in bucket.names(folder) if RANK_NAME.fullmatch(name)]
    if "rank-0" in ranks:
        bucket.copy(f"{folder}/rank-0", to)
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(copy_newest, [rank for rank in ranks if rank != "rank-0"]))


def newest_checkpoint(bucket: Bucket, folder: str) -> str:
    """Return the path or URL of the newest checkpoint in a folder, or of the folder if the names do not show it."""
    if bucket.problem or not bucket.names(folder):
        return ""
    name = bucket.newest_checkpoint(folder)
    return short_home(bucket.location(f"{folder}/{name}" if name else folder))


def known_restarts(pods: Sequence[PodState], events: Iterable[Event]) -> int:
    """Return the number of restarts: of pods, or of processes if the launcher reports more of these."""
    numbers = [event.get("number") for event in events if event["event"] == "restart"]
    return max([count_restarts(pods), *(number for number in numbers if isinstance(number, int))])


def known_troubles(pods: Sequence[PodState], events: Iterable[Event]) -> list[tuple[float, str]]:
    """Return the time and the reason of each restart and failure in the states of pods and in the launcher's lines."""
    # Import late: that module imports the page of a report, which imports this module.
    from commands.dashboard.document import job_events

    restarts = [event for event in events if event["event"] == "restart"]
    found = job_events(pods, latest_pods(pods), restarts)
    return [(float(moment), str(text)) for moment, kind, text in found if kind in TROUBLE_KINDS]


def failed_end(cluster: Cluster, state: JobState, pods: Sequence[PodState]) -> list[str]:
    """Return the lines that `make logs` prints about the end of a failed job; empty for other jobs or without pods."""
    if state.state != "failed" or not pods:
        return []
    failed = sorted((pod for pod in latest_pods(pods) if pod.state == "failed"), key=lambda pod: pod.finished or "9")
    tails = {}
    for pod in failed[:MAX_FAILED_HOSTS]:
        with suppress(Unreachable):
            tails[pod.uid] = cluster.log(pod, TAIL_LINES)
    # The page has the state and the reason elsewhere.
    return [line.removeprefix("  ") for line in summary(replace(state, reason=""), list(pods), None, tails)[1:]]


def log_events(log_of: Callable[[PodState], Iterable[tuple[str, str]]], pods: Sequence[PodState]) -> list[Event]:
    """Return the events that the first host has printed. Include the events of its earlier pods that still exist."""
    first = sorted((pod for pod in pods if pod.index == 0 and pod.has_log), key=lambda pod: pod.created)
    found: list[Event] = []
    for pod in first:
        with suppress(Unreachable):
            found += events_of_log(log_of(pod))
    return found


def report(job: str, output: Path | None, *, as_json: bool) -> int:
    """Write the page about a job to `output`, by default next to its run record. Return the exit status.

    With `as_json`, print the numbers of the page, and write the page only if `output` is set. Raises CommandError for a
    stopped job without a log and metrics, if the page would replace an earlier page at the default path.
    """
    stack = os.environ.get("STACK", DEFAULT_STACK)
    found, bucket = collect(stack, job)
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
        if output is None:
            return 0
    # Import late: a report as JSON does not need it.
    from commands.report_page import page

    file = output or default_file(bucket, str(found.record["bucket_prefix"]), found.job)
    if output is None and file.exists() and found.state.state == "suspended" and not found.events:
        raise CommandError(
            f"job {found.job} is stopped: its log was deleted with its pods, and no metrics can be read; {file} is "
            f"unchanged; `trainyard report {found.job} --output FILE` writes a page without curves"
        )
    text = page(found)
    with output_file(file, should_make_folder=output is None) as written:
        written.write_text(text, encoding="utf-8")
    if as_json:
        return 0
    advice = "open it in a browser"
    if output is None and bucket.is_cluster_local:
        down = make_command("down", STACK=stack)
        elsewhere = f"`trainyard report {found.job} --output FILE`"
        advice += f"; {down} deletes the page with the bucket, {elsewhere} writes it elsewhere"
    print(f"{file.resolve()}: {file.stat().st_size:,} bytes; {advice}")
    return 0


def default_file(bucket: Bucket, folder: str, job: str) -> Path:
    """Return the default file of a report: next to the run record on this machine, else in the working directory."""
    if not bucket.problem and bucket.is_cluster_local:
        return Path(bucket.location(folder)) / REPORT_FILE
    return Path(f"{job}-{REPORT_FILE}")
