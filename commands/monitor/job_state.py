"""State of a job, derived from its object: an Indexed Job or an operator's resource.

Each operator has its own conditions. Source: the code of the operators, at the versions in setup/go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from commands.monitor.pod_state import Object, find_condition, one_line, time_of
from infra.make_command import make_command
from infra.naming import QUEUE_LABEL
from workloads.kinds import DEFAULT, KINDS
from workloads.kinds.kind import Resource

CUSTOM_KINDS: Mapping[str, Resource] = {name: kind.resource for name, kind in KINDS.items() if kind.resource}
"""Job kind -> its custom resource."""
_NAMES = {(resource.api_version, resource.kind): name for name, resource in CUSTOM_KINDS.items()}
"""API version and kind -> job kind."""


@dataclass(frozen=True, kw_only=True)
class JobState:
    """State of one job."""

    name: str
    kind: str
    """Kind of the job, as in the stack's settings."""
    state: str
    """State: pending (no host runs), running, complete, failed, suspended, queued (its queue has not admitted it), or
    absent.
    """
    reason: str = ""
    """Reason why it failed or is not running: Kubernetes' reason and message."""
    hosts: int = 0
    started: str = ""
    """Time at which Kubernetes started it (RFC 3339)."""
    created: str = ""
    """Creation time of its object (RFC 3339)."""
    finished: str = ""
    """Time at which it completed or failed (RFC 3339); empty before."""
    uid: str = ""
    """Kubernetes' UID. A job recreated under the same name has a new one."""
    queue: str = ""
    """Queue that admits it; empty for none."""
    is_resumed: bool = False
    """True if it was suspended before its last start, as by `stop`. `started` is then the time of that start."""

    @property
    def is_over(self) -> bool:
        """True if it is complete or failed."""
        return self.state in ("complete", "failed")

    def known_until(self, now: float) -> float | None:
        """Return the time in seconds since 1970 at which it ended; `now` if it has not ended.

        Return None if it is suspended or absent, because Kubernetes then does not say when it stopped.
        """
        if self.state in ("suspended", "absent"):
            return None
        return time_of(self.finished) or now


def job_state(job: Object) -> JobState:
    """Return the state of a job of any kind. An object without a kind is a Job of batch/v1."""
    name = _NAMES.get((job.get("apiVersion", ""), job.get("kind", "")))
    return _custom_state(job, name, CUSTOM_KINDS[name]) if name else _batch_state(job)


def why_no_pods(job: JobState) -> str:
    """Return the reason why a job has no running pods, and what to do."""
    why = f": {job.reason}" if job.reason else ""
    if job.state == "suspended":
        return f"job {job.name} is stopped; {make_command('resume', JOB=job.name)} continues it"
    if job.state == "absent":
        return f"job {job.name} does not exist; {make_command('up')} creates it"
    if job.is_over:
        return f"job {job.name} is {job.state}{why}; {rerun_advice(job)}"
    return f"job {job.name} is {job.state}{why}; {make_command('status')} shows its events"


def rerun_advice(job: JobState) -> str:
    """Return advice to run a finished job again. A complete job needs a fresh start: it would resume at its end."""
    if job.state == "complete":
        return f"{make_command('rerun', JOB=job.name, FRESH='1')} runs it again from the start"
    return f"{make_command('rerun', JOB=job.name)} runs it again"


def _batch_state(job: Object) -> JobState:
    meta, spec, status = job["metadata"], job["spec"], job.get("status", {})
    # A job whose hosts have all succeeded counts as running until its controller completes it, which can take minutes.
    is_ending = status.get("succeeded", 0) >= (spec.get("completions") or 1)
    state, reason, finished, is_resumed = "running" if status.get("ready") or is_ending else "pending", "", "", False
    for condition in status.get("conditions") or []:
        if condition["status"] != "True":
            is_resumed = is_resumed or condition["type"] == "Suspended"
            continue
        if condition["type"] == "Complete":
            state, finished = "complete", status.get("completionTime") or condition["lastTransitionTime"]
        elif condition["type"] == "Failed":
            state, finished, reason = "failed", condition["lastTransitionTime"], _condition_text(condition)
        elif condition["type"] == "Suspended":
            state, reason = _suspended(meta)
    return JobState(
        name=meta["name"],
        kind=DEFAULT.name if spec.get("completionMode") == "Indexed" else "job",
        state=state,
        reason=reason,
        hosts=spec.get("completions") or spec.get("parallelism") or 1,
        started=status.get("startTime") or "",
        created=meta.get("creationTimestamp", ""),
        finished=finished,
        uid=meta["uid"],
        queue=_queue(meta),
        is_resumed=is_resumed,
    )


def _custom_state(job: Object, kind: str, resource: Resource) -> JobState:
    """Return the state of an operator's job. Its end takes precedence, because earlier conditions may still be true."""
    meta, status = job["metadata"], job.get("status", {})
    conditions = {each["type"]: each for each in resource.conditions(status) if each["status"] == "True"}
    suspensions = [each for each in resource.conditions(status) if each["type"] == "Suspended"]
    resumed = next((each["lastTransitionTime"] for each in suspensions if each["status"] == "False"), "")
    state, reason, finished = "running" if resource.is_running(status) else "pending", "", ""
    if end := conditions.get(resource.complete):
        state, finished = "complete", status.get("completionTime") or end["lastTransitionTime"]
    elif end := conditions.get("Failed"):
        state, reason = "failed", _condition_text(end)
        finished = status.get("completionTime") or end["lastTransitionTime"]
    elif "Suspended" in conditions:
        state, reason = _suspended(meta)
    elif state == "pending" and "Restarting" in conditions:
        reason = _condition_text(conditions["Restarting"])
    return JobState(
        name=meta["name"],
        kind=kind,
        state=state,
        reason=reason,
        hosts=resource.hosts(job["spec"]),
        started=status.get("startTime") or resumed or meta["creationTimestamp"],
        created=meta["creationTimestamp"],
        finished=finished,
        uid=meta["uid"],
        queue=_queue(meta),
        is_resumed=bool(resumed),
    )


def _queue(metadata: Object) -> str:
    return str((metadata.get("labels") or {}).get(QUEUE_LABEL, ""))


def _suspended(metadata: Object) -> tuple[str, str]:
    """Return the state and reason of a suspended job. Kueue suspends a queued job until its queue has capacity."""
    queue = _queue(metadata)
    return ("queued", f"waits in queue {queue}") if queue else ("suspended", "")


def why_queued(workload: Object) -> str:
    """Return Kueue's reason why a job is not admitted yet; empty if it gives none."""
    status = workload.get("status") or {}
    reserved = find_condition(status, "QuotaReserved")
    if reserved.get("status") != "True":
        return one_line(reserved.get("message", ""))
    checks = (each for each in status.get("admissionChecks") or [] if each.get("state") != "Ready")
    return "; ".join(one_line(f"{each['name']} {each['state']}: {each.get('message', '')}") for each in checks)


_NON_RETRYABLE_EXIT = re.compile(
    r"Container \S+ for pod (?:\S+/)?(\S+) failed with exit code (\d+) matching FailJob rule.*"
)
"""Kubernetes' message about an exit code that fails a job without a restart."""


def _condition_text(condition: Object) -> str:
    if found := _NON_RETRYABLE_EXIT.fullmatch(one_line(condition.get("message", ""))):
        return f"pod {found[1]} failed with exit code {found[2]}; Kubernetes does not replace it after this exit code"
    return ": ".join(filter(None, (condition.get("reason"), one_line(condition.get("message", "")))))
