"""JSON document that the dashboard's page shows for one stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from commands.dashboard.metrics import Curves
from commands.monitor.job_state import JobState
from commands.monitor.logs import Event
from commands.monitor.pod_state import (
    WORKER,
    Object,
    PodState,
    find_condition,
    latest_pods,
    lost_node_advice,
    node_line,
    silent_since,
    time_of,
)
from commands.monitor.screen import restart_reason
from commands.report_page import CHARTS, fresh_text, saved_text
from commands.run_times import CAUSES, STRAGGLER_SPEED, RunTimes, goodput, saved_step, speeds, without_short
from infra.naming import POOL_LABEL
from settings.text import counted

CURVE_KEYS = tuple((event, key) for _title, _unit, lines in CHARTS for event, key, _name in lines)
"""Event and key of each curve."""
STATES = ("none", "pending", "creating", "running", "succeeded", "failed", "ending")
"""States of a host's pod; `none` for a host without a pod. The document has the state's index in this tuple."""
DISRUPTIONS = frozenset(
    {
        "DeletionByPodGC",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "Evicted",
        "Preempted",
        "PreemptionByScheduler",
        "TerminationByKubelet",
    }
)
"""Reasons for which Kubernetes ends pods whose containers have not failed:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions"""
PREEMPTED_CODES = (75, 203)
"""Exit codes of a preempted trainer: its own code, and its own code plus the 128 that `trainer.launch` adds."""
POOL_LABELS = (POOL_LABEL, "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup")
"""Node labels with the name of the pool: Trainyard's, GKE's and EKS's."""
MACHINE_LABEL = "node.kubernetes.io/instance-type"
MAX_SPANS = 400
"""Maximum number of spans on the time line. A span shorter than 1/MAX_SPANS of the time joins the span before it."""
MAX_EVENTS = 100
"""Maximum number of a job's events on the page. The page lists the newest."""
PEER_FAILED = "ended because another host failed"
SAME_FAILURE_SECONDS = 15.0
"""Seconds within which failures of several hosts for the same reason count as one event."""
STRAGGLER_SECONDS = 300.0
"""Seconds for which the page lists a straggler after the trainer has reported it."""
MAX_LISTED = 20
"""Maximum number of problems of a job that the page lists; the same for its stragglers and a stack's warnings."""
LATEST_KEYS = (
    "epoch",
    "step",
    "steps",
    "global_steps",
    "loss",
    "accuracy",
    "bits_per_byte",
    "global_rate",
    "data_wait",
    "mfu",
)
"""Fields of the last `train` event of rank 0 that the page shows."""
NO_POD = {
    "failed": "no pod: Kubernetes deletes the pods that still run when a job fails",
    "complete": "no pod: it was deleted after the job completed",
    "suspended": "no pod: the job is stopped",
    "queued": "no pod before the queue admits the job",
}
"""State of a job -> reason why a host has no pod. In other states, its pod does not exist yet."""
SCRIPT_PAGE = "docs/bring-your-own-script.md"
"""Page of the docs about the lines that a script prints."""


@dataclass(frozen=True, kw_only=True)
class JobMetrics:
    """Metrics of one job so far."""

    curves: Curves
    times: RunTimes
    latest: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Rank -> its last `train` event."""
    events: Sequence[Mapping[str, Any]] = ()
    """Checkpoint, resume, restart, straggler and done events of rank 0."""
    fresh_start: str = ""
    """Time of the last `rerun --fresh`; empty if unknown."""
    since: float | None = None
    """Time at which the known logs of rank 0 begin; None if all logs are known."""
    share_read: float = 1.0
    """Share of the metrics that has been read. The first read of a long run takes several refreshes."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """State of a stack at one time."""

    stack: str
    folder: str = ""
    """Project folder of the stack; empty for the dashboard's own project."""
    namespace: str
    time: float
    """Time of the observation, in seconds since 1970."""
    nodes: Sequence[Object]
    nodes_problem: str = ""
    """Reason why the nodes are unknown; empty if they are known."""
    jobs: Mapping[str, JobState]
    pods: Sequence[PodState]
    metrics: Mapping[str, JobMetrics]
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a job -> its run record."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Uid of a pod or job -> its last warning."""
    warnings: Sequence[Object] = ()
    """Warning events of the namespace, oldest first."""
    usd_per_hour: float | None = None
    """Price of the platform at the maximum number of nodes; None if it is unknown."""


def document(observation: Observation) -> dict[str, Any]:
    """Return the document of a stack."""
    pods_by_job: dict[str, list[PodState]] = {}
    for pod in observation.pods:
        pods_by_job.setdefault(pod.owner, []).append(pod)
    node_indexes = {str(node["metadata"]["name"]): index for index, node in enumerate(observation.nodes)}
    silent = {
        name: since for name, node in zip(node_indexes, observation.nodes, strict=True) if (since := silent_since(node))
    }
    jobs = []
    pods_by_node: dict[str, list[list[Any]]] = {}
    for job_index, job in enumerate(observation.jobs.values()):
        pods = pods_by_job.get(job.uid, []) if job.uid else []
        current = latest_pods(pods)
        jobs.append(_job(observation, job, pods, node_indexes, silent))
        for pod in current:
            if pod.node and not pod.is_over:
                pods_by_node.setdefault(pod.node, []).append([job_index, pod.label])
    costs = [job["usd"] for job in jobs if job["usd"] is not None]
    return {
        "stack": observation.stack,
        "folder": observation.folder,
        "namespace": observation.namespace,
        "time": observation.time,
        "nodes_problem": observation.nodes_problem,
        "advice": lost_node_advice(observation.nodes),
        "nodes": [_node(node, pods_by_node) for node in observation.nodes],
        "jobs": jobs,
        "warnings": [_warning(each) for each in observation.warnings[-MAX_LISTED:]],
        "usd": round(sum(costs), 2) if costs else None,
        "usd_per_hour": observation.usd_per_hour,
        "causes": list(CAUSES),
        "states": list(STATES),
    }


def _job(
    observation: Observation,
    job: JobState,
    pods: Sequence[PodState],
    node_indexes: Mapping[str, int],
    silent: Mapping[str, str],
) -> dict[str, Any]:
    metrics = observation.metrics.get(job.name) or JobMetrics(curves=Curves(CURVE_KEYS), times=RunTimes())
    current = latest_pods(pods)
    hosts = [pod for pod in current if pod.role == WORKER]
    processes = max((pod.processes for pod in hosts), default=1)
    ranks = max(job.hosts, len(hosts)) * processes
    latest = metrics.latest
    found = speeds({rank: event for rank, event in latest.items() if rank < ranks})
    is_known = bool(node_indexes) and not observation.nodes_problem
    lost = {pod.uid: _lost(pod, silent, is_gone=is_known and pod.node not in node_indexes) for pod in current}
    why = {pod.uid: text for pod in current if (text := lost[pod.uid] or pod.why or observation.notes.get(pod.uid, ""))}
    finished = time_of(job.finished)
    usd, price = _cost(observation, job)
    return {
        "name": job.name,
        "kind": job.kind,
        "state": job.state,
        "reason": job.reason or observation.notes.get(job.uid, ""),
        "started": time_of(job.started),
        "is_resumed": job.is_resumed,
        "finished": finished,
        "processes": processes,
        "ranks": ranks,
        "no_pod": NO_POD.get(job.state, "no pod yet"),
        "no_charts": _no_charts(job, hosts),
        "usd": usd,
        "usd_per_hour": price,
        "hosts": _hosts(hosts, why, node_indexes, max(job.hosts, len(hosts))),
        "others": [[pod.label, pod.name, STATES.index(pod.state), pod.node] for pod in current if pod.role != WORKER],
        "steps": [_rounded(latest[rank].get("global_step")) if rank in latest else None for rank in range(ranks)],
        "speeds": [round(found[rank], 3) if rank in found else None for rank in range(ranks)],
        "now": _latest_values(latest.get(0)),
        "fresh": fresh_text(metrics.fresh_start) if metrics.fresh_start else "",
        "attention": list(_attention(observation, current, why, {} if finished else found, metrics)),
        "events": job_events(pods, current, metrics.events),
        **_run(metrics, job, observation.time),
    }


def _no_charts(job: JobState, hosts: Sequence[PodState]) -> str:
    if (job.is_over or job.state == "suspended") and not any(pod.index == 0 for pod in hosts):
        return (
            "The steps of the job are unknown: the log of rank 0 was deleted with its pod, and this machine has no "
            f"metrics of the job. To keep the steps, also append them to a file in the bucket ({SCRIPT_PAGE})."
        )
    if any(pod.runs_script for pod in hosts):
        return (
            "The job has reported no step. A script reports one if rank 0 prints a line such as "
            f"`train step=12/400 loss=0.35` ({SCRIPT_PAGE})."
        )
    return "The job has reported no step."


def _lost(pod: PodState, silent: Mapping[str, str], *, is_gone: bool) -> str:
    """Return the problem of a pod whose node does not answer or no longer exists; empty for other pods."""
    if pod.is_over or not pod.node:
        return ""
    if is_gone:
        return f"its node {pod.node} no longer exists; Kubernetes replaces the pod within a minute"
    return f"its node {pod.node} has not answered since {silent[pod.node]}" if pod.node in silent else ""


def _hosts(
    hosts: Sequence[PodState], why: Mapping[str, str], node_indexes: Mapping[str, int], count: int
) -> dict[str, list[Any]]:
    """Return one list for each property of the hosts, sorted by index. A host without a pod has an empty name."""
    by_index = {pod.index: pod for pod in hosts}
    rows = [by_index.get(index) for index in range(count)]
    return {
        "pods": [pod.name if pod else "" for pod in rows],
        "states": [STATES.index(pod.state) if pod else 0 for pod in rows],
        "nodes": [node_indexes.get(pod.node, -1) if pod else -1 for pod in rows],
        "why": [[index, why[pod.uid]] for index, pod in enumerate(rows) if pod and pod.uid in why],
    }


def _run(metrics: JobMetrics, job: JobState, now: float) -> dict[str, Any]:
    """Return a job's curves, how it spent its time, and the steps from which it resumed."""
    until = job.known_until(now)
    # The times of a script that prints no events are unknown.
    is_known = bool(metrics.times.starts) or job.state in ("pending", "queued")
    seconds = metrics.times.seconds_by_cause(until) if is_known else {}
    percent = goodput(seconds)
    spans = without_short(metrics.times.spans(until), MAX_SPANS) if is_known else []
    return {
        "charts": list(charts(metrics.curves)),
        "spans": [[round(each.begun, 1), round(each.ended, 1), CAUSES.index(each.cause)] for each in spans],
        "seconds": {cause: round(value, 1) for cause, value in seconds.items()},
        "goodput": None if percent is None else round(percent, 1),
        "share_read": round(metrics.share_read, 3),
        "resumed": [
            step for each in metrics.events if each["event"] == "resume" and (step := saved_step(each)) is not None
        ],
        "since": metrics.since if is_known else None,
        "possible_stops": metrics.times.possible_stops,
    }


def charts(curves: Curves) -> Iterator[dict[str, Any]]:
    """Yield the charts that have points. The points of a curve are a flat list: step, value, step, value."""
    for title, unit, lines in CHARTS:
        found = []
        for event, key, name in lines:
            if points := curves.points(event, key):
                found.append({"name": name, "points": [_rounded(each) for point in points for each in point]})
        if found:
            yield {"title": title, "unit": unit, "lines": found}


def _node(node: Object, pods_by_node: Mapping[str, list[list[Any]]]) -> list[Any]:
    """Return a node's name, pool, machine type, state (0 ready, 1 cordoned, 2 not ready), description and pods."""
    name, labels = str(node["metadata"]["name"]), node["metadata"].get("labels") or {}
    pool = next((str(labels[each]) for each in POOL_LABELS if each in labels), "")
    is_ready = find_condition(node.get("status", {}), "Ready").get("status") == "True"
    is_cordoned = bool(node.get("spec", {}).get("unschedulable"))
    state = (1 if is_cordoned else 0) if is_ready else 2
    text = node_line(node)[0].removeprefix(f"{name} ") if state or silent_since(node) else ""
    return [name, pool, str(labels.get(MACHINE_LABEL, "")), state, text, pods_by_node.get(name, [])]


def _warning(event: Object) -> list[Any]:
    return [time_of(str(event.get("time") or "")), f"{event['object']}: {event['reason']}: {event['message']}"]


def _cost(observation: Observation, job: JobState) -> tuple[float | None, float | None]:
    """Return the estimated cost of the job's hosts in US dollars since its last start, and their price an hour."""
    price = observation.records.get(job.name, {}).get("usd_per_hour")
    begun = time_of(job.started)
    if price is None or begun is None:
        return None, price
    if job.state in ("suspended", "queued") and not job.finished:
        return None, price
    ended = time_of(job.finished) or observation.time
    return round(price * max(0.0, ended - begun) / 3600, 4), price


def _latest_values(event: Mapping[str, Any] | None) -> dict[str, Any]:
    if event is None:
        return {}
    found = {key: _rounded(event[key]) for key in LATEST_KEYS if event.get(key) is not None}
    return found | ({"global_step": event["global_step"]} if "global_step" in event else {})


def _attention(
    observation: Observation,
    current: Sequence[PodState],
    why: Mapping[str, str],
    rank_speeds: Mapping[int, float],
    metrics: JobMetrics,
) -> Iterator[list[Any]]:
    """Yield the most common problems, then the slowest stragglers. Each has a rank or role, a kind and a text."""
    texts = Counter(why[pod.uid] for pod in current if pod.uid in why)
    for text, count in texts.most_common(MAX_LISTED):
        pod = next(pod for pod in current if why.get(pod.uid) == text)
        more = f" and {count - 1:,} more" if count > 1 else ""
        yield [f"{'rank ' if pod.ranks else ''}{pod.label}{more}", "problem", text]
    reported = {
        each["slow_rank"]: float(each["slower"])
        for each in metrics.events
        if _names_straggler(each) and observation.time - float(each["time"]) < STRAGGLER_SECONDS
    }
    slow = {rank: 1 / speed for rank, speed in rank_speeds.items() if speed < STRAGGLER_SPEED}
    slow |= reported if rank_speeds else {}
    for rank, ratio in sorted(slow.items(), key=lambda each: -each[1])[:MAX_LISTED]:
        yield [f"rank {rank}", "straggler", f"takes {ratio:.1f} times the median time for its own part of a step"]


def _names_straggler(event: Mapping[str, Any]) -> bool:
    """Return True for a `straggler` event of the trainer. A script may print such an event with other values."""
    rank, ratio = event.get("slow_rank"), event.get("slower")
    return event["event"] == "straggler" and isinstance(rank, int) and isinstance(ratio, int | float)


def job_events(
    pods: Sequence[PodState], current: Sequence[PodState], events: Iterable[Mapping[str, Any]]
) -> list[list[Any]]:
    """Return the time, kind and text of each of a job's last MAX_EVENTS events, oldest first."""
    found = [(float(each["time"]), *_event_text(each, current)) for each in events]
    grouped: dict[tuple[str, str], list[tuple[float, PodState]]] = {}
    ends = [(time, pod) for pod in pods if pod.state == "failed" and (time := time_of(pod.finished)) is not None]
    failures = [time for time, pod in ends if not _is_preempted(pod)]
    for time, pod in ends:
        kind, why = "failure", pod.why
        if _is_preempted(pod):
            # After a failure, the other ranks end with the exit code of a preemption.
            is_near_failure = any(abs(time - each) <= SAME_FAILURE_SECONDS for each in failures)
            is_peer_failure = is_near_failure and pod.reason not in DISRUPTIONS
            kind, why = ("failure", PEER_FAILED) if is_peer_failure else ("preemption", why)
        grouped.setdefault((kind, why), []).append((time, pod))
    for (kind, why), failed in grouped.items():
        found += _failures(kind, why, sorted(failed, key=lambda each: each[0]))
    latest = {pod.uid for pod in current}
    replaced = Counter(pod.place for pod in pods if pod.uid not in latest)
    replacement_times = sorted(
        time for pod in current if replaced[pod.place] and (time := time_of(pod.created)) is not None
    )
    if replacement_times:
        found.append((replacement_times[-1], "restart", f"{counted(len(replacement_times), 'host')} replaced"))
    return [[round(time, 1), kind, text] for time, kind, text in sorted(found)[-MAX_EVENTS:] if kind]


def _failures(kind: str, why: str, failed: Sequence[tuple[float, PodState]]) -> Iterator[tuple[float, str, str]]:
    """Yield an event for each group of hosts that failed together. All hosts in `failed` have the same reason."""
    group: list[tuple[float, PodState]] = []
    for each in [*failed, None]:
        if group and (each is None or each[0] - group[0][0] > SAME_FAILURE_SECONDS):
            first = group[0][1]
            label = f"rank {first.label}" if first.ranks else first.label
            more = f" and {counted(len(group) - 1, 'more host')}" if len(group) > 1 else ""
            yield group[0][0], kind, f"{label}{more}: {why}"
            group = []
        if each is not None:
            group.append(each)


def _is_preempted(pod: PodState) -> bool:
    return pod.reason in DISRUPTIONS or pod.exit_code in PREEMPTED_CODES


def _event_text(event: Mapping[str, Any], hosts: Iterable[PodState]) -> tuple[str, str]:
    """Return the kind and text of an event of rank 0. The kind is empty if the page does not show the event."""
    name = event["event"]
    if name == "checkpoint":
        return "checkpoint", f"{saved_text(event)} saved"
    if name == "resume":
        step = saved_step(event)
        return "restart", "resumed" if step is None else f"resumed from step {step}"
    if name == "restart":
        if "failed_rank" not in event or "exit_code" not in event:
            return "restart", "the ranks restarted"
        fields = {key: str(value) for key, value in event.items()}
        for pod in hosts:
            if event["failed_rank"] in pod.ranks and (text := restart_reason(pod, Event("restart", fields))):
                return "restart", text
        return "restart", f"rank {event['failed_rank']} ended with exit code {event['exit_code']}"
    if _names_straggler(event):
        return "straggler", f"rank {event['slow_rank']} takes {event['slower']} times the median time"
    if name == "done":
        return "done", "trained to the end"
    return "", ""


def _rounded(value: Any) -> Any:
    """Round a float to five significant digits, except whole numbers. Return other values unchanged."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.5g}")
    return value
