"""Derives from pods and jobs, as the Kubernetes API gives them, their state, its reason and the exit code's meaning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.naming import JOB_LABEL

Object = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label with the index of a pod in its Indexed Job."""

STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "FailedCreate",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons for waiting that do not pass by themselves."""

EXIT_CODES = {
    0: "done",
    1: "uncaught error, or another rank failed first: its log says which",
    2: "command line not understood",
    65: "diverged: the loss is not a number",
    66: "data error",
    70: "hang: a step took too long",
    74: "storage full or failing",
    75: "preempted, to be started again",
    78: "bad configuration: a flag or its value",
    126: "the command cannot be executed",
    127: "the command is not in the image",
}
"""What exit codes mean: those of the trainer (trainer/exit_codes.py) and those of every shell."""
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True, kw_only=True)
class PodState:
    """What one pod of a job does."""

    uid: str
    """Identity of the pod: a restarted host has another one."""
    name: str
    """Name of the pod."""
    job: str
    """The job it belongs to."""
    owner: str = ""
    """Identity of the object that made it: a job made again under the same name has another one."""
    index: int
    """Which of the job's hosts it is."""
    processes: int
    """Number of ranks in it."""
    node: str
    """The node it is bound to; empty while it is not."""
    state: str
    """pending, creating, running, succeeded, failed, or ending."""
    reason: str = ""
    """Why it waits or failed, a word of Kubernetes'."""
    message: str = ""
    """The same in full."""
    exit_code: int | None = None
    """Exit code of the container, once it has ended."""
    restarts: int = 0
    """How often its container was started again."""
    created: str = ""
    """When it was made (RFC 3339)."""
    finished: str = ""
    """When its container ended (RFC 3339); empty before."""

    @property
    def ranks(self) -> range:
        """The ranks that run in it."""
        return range(self.index * self.processes, (self.index + 1) * self.processes)

    @property
    def has_log(self) -> bool:
        """Whether its container has been started."""
        return self.state in ("running", "succeeded", "failed", "ending") and bool(self.node)

    @property
    def is_over(self) -> bool:
        """Whether it will never print again."""
        return self.state in ("succeeded", "failed")

    @property
    def why(self) -> str:
        """Reason, exit code and their meaning in one line; empty when all is well."""
        if self.exit_code is not None and self.state == "failed":
            reason = f" ({self.reason})" if self.reason not in ("", "Error") else ""
            return f"exit code {self.exit_code}: {exit_meaning(self.exit_code)}{reason}"
        return ": ".join(text for text in (self.reason, self.message) if text)


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What one job does."""

    name: str
    """Name of the job."""
    kind: str
    """Kind of the job in the stack's words."""
    state: str
    """pending (no host runs), running, complete, failed, suspended, or absent."""
    reason: str = ""
    """Why it failed, a word of Kubernetes' and its explanation."""
    hosts: int = 0
    """Number of its hosts."""
    started: str = ""
    """When Kubernetes took it up (RFC 3339)."""
    finished: str = ""
    """When it completed or failed (RFC 3339); empty before."""
    uid: str = ""
    """Identity: a job made again under the same name has another one."""

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self.state in ("complete", "failed")


def exit_meaning(code: int) -> str:
    """What an exit code means; negative codes and those over 128 are signals."""
    signal = -code if code < 0 else code - 128
    if signal in SIGNALS:
        killed = ": out of memory, or killed by hand" if signal == 9 else ""
        return f"ended by {SIGNALS[signal]}{killed}"
    return EXIT_CODES.get(code, "not a code of the trainer's")


def pod_state(pod: Object) -> PodState:
    """What `pod` does."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    container = (status.get("containerStatuses") or [{}])[0]
    current = container.get("state", {})
    terminated = current.get("terminated") or {}
    state, reason, message = _condition(meta, spec, status, current)
    index = meta.get("annotations", {}).get(INDEX) or meta.get("labels", {}).get(INDEX) or "0"
    return PodState(
        uid=meta["uid"],
        name=meta["name"],
        owner=next((each["uid"] for each in meta.get("ownerReferences") or []), ""),
        job=meta.get("labels", {}).get(JOB_LABEL, ""),
        index=int(index),
        processes=_processes(spec),
        node=spec.get("nodeName", ""),
        state=state,
        reason=reason,
        message=message,
        exit_code=terminated.get("exitCode"),
        restarts=container.get("restartCount", 0),
        created=meta["creationTimestamp"],
        finished=terminated.get("finishedAt") or "",
    )


def _condition(meta: Object, spec: Object, status: Object, current: Object) -> tuple[str, str, str]:
    """State, reason and message of a pod."""
    phase = status.get("phase", "Pending")
    waiting, terminated = current.get("waiting") or {}, current.get("terminated") or {}
    if phase in ("Succeeded", "Failed"):
        # The pod's own reason (Evicted, DeadlineExceeded, ...) explains more than its container's.
        reason = status.get("reason") or _disruption(status) or terminated.get("reason", "")
        message = status.get("message") or terminated.get("message", "")
        return phase.lower(), "" if reason == "Completed" else reason, _line(message)
    if "deletionTimestamp" in meta:
        return "ending", "Terminating", _line(_disruption(status))
    if phase == "Running" and not waiting:
        return "running", "", ""
    if waiting:
        reason, message = waiting.get("reason", ""), _line(waiting.get("message", ""))
        creating = reason in ("ContainerCreating", "PodInitializing")
        return ("creating", "", message) if creating else ("pending", reason, message)
    scheduled = _find(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return "pending", scheduled.get("reason", "Unschedulable"), _line(scheduled.get("message", ""))
    return ("creating" if spec.get("nodeName") else "pending"), "", ""


def _disruption(status: Object) -> str:
    """Why Kubernetes itself ended the pod (preempted, evicted, node lost); empty when it did not."""
    found = _find(status, "DisruptionTarget")
    return str(found.get("reason", "")) if found.get("status") == "True" else ""


def _find(status: Object, kind: str) -> Object:
    return next((each for each in status.get("conditions") or [] if each["type"] == kind), {})


def _processes(spec: Object) -> int:
    """Number of training processes of a host, as torchrun reads it from its environment."""
    for variable in spec["containers"][0].get("env") or []:
        if variable["name"] == "PET_NPROC_PER_NODE" and str(variable.get("value", "")).isdigit():
            return int(variable["value"])
    return 1


def job_state(job: Object) -> JobState:
    """What `job` (batch/v1) does."""
    meta, spec, status = job["metadata"], job["spec"], job.get("status", {})
    state, reason, finished = "running" if status.get("ready") else "pending", "", ""
    for condition in status.get("conditions") or []:
        if condition["status"] != "True":
            continue
        if condition["type"] == "Complete":
            state, finished = "complete", status.get("completionTime") or condition["lastTransitionTime"]
        elif condition["type"] == "Failed":
            state, finished = "failed", condition["lastTransitionTime"]
            reason = ": ".join(filter(None, (condition.get("reason"), _line(condition.get("message", "")))))
        elif condition["type"] == "Suspended":
            state = "suspended"
    return JobState(
        name=meta["name"],
        kind="indexed-job" if spec.get("completionMode") == "Indexed" else "job",
        state=state,
        reason=reason,
        hosts=spec.get("completions") or spec.get("parallelism") or 1,
        started=status.get("startTime") or "",
        finished=finished,
        uid=meta["uid"],
    )


def latest_by_host(pods: Iterable[PodState]) -> dict[int, PodState]:
    """The newest pod of each host of one job, by index."""
    found: dict[int, PodState] = {}
    for pod in pods:
        known = found.get(pod.index)
        if known is None or (pod.created, not pod.is_over) >= (known.created, not known.is_over):
            found[pod.index] = pod
    return dict(sorted(found.items()))


def count_restarts(pods: Iterable[PodState]) -> int:
    """How often the job's hosts were started again, counting those that restarted together once."""
    by_host: dict[int, int] = {}
    for pod in pods:
        by_host[pod.index] = by_host.get(pod.index, -1) + 1 + pod.restarts
    return max(by_host.values(), default=0)


def seconds_between(start: str, end: str) -> float | None:
    """Seconds from one time of the API to another; None where either is missing."""
    if not start or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _line(text: str) -> str:
    return " ".join(text.split())
