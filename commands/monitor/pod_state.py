"""States of pods and nodes, from their objects in the Kubernetes API, and explanations of exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from infra.make_command import make_command
from infra.naming import COMPONENT_LABEL, JOB_LABEL
from trainer.exit_codes import (
    BAD_CONFIGURATION,
    DATA_ERROR,
    DIVERGED,
    DONE,
    HANG,
    PREEMPTED,
    RESTARTS_USED,
    SLOW_LINK,
    STORAGE_ERROR,
)
from workloads.kinds import KINDS

Object = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label with the index of a pod in its Indexed Job."""

ROLE_INDICES = {kind.index_label for kind in KINDS.values() if kind.index_label}
"""Labels with the index of a pod among the pods of its role."""
SLICE_INDEX = "jobset.sigs.k8s.io/job-index"
SLICES = "jobset.sigs.k8s.io/replicatedjob-replicas"
"""Labels of a JobSet's pods: the index of their Job and the number of Jobs."""
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation with the number of a pod's earlier failures. Only Jobs that count failures by index set it."""
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10, 600
"""The Job controller's backoff: DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff in
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/job/job_controller.go
"""
WORKER = "worker"
"""Role of pods that train."""
LAUNCHER = "launcher"
"""Role of the pod that starts the training in the job's other pods (mpi-job, ray-job). A Kubernetes Job creates it."""

STUCK_REASONS = frozenset(
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
"""Reasons for waiting that do not go away by themselves."""

_EXIT_MESSAGE = re.compile(r"Pod: [^.]+\.(?P<pod>\S+) exited with code (?P<code>\d+)")


@dataclass(frozen=True, kw_only=True)
class PodState:
    """State of one pod of a job."""

    uid: str
    """Kubernetes' UID of the pod. A restarted host has a new one."""
    name: str
    job: str
    owner: str = ""
    """UID of the object that created it. A job recreated under the same name has a new one."""
    role: str = WORKER
    """Its role in its job: worker, launcher, scheduler or server."""
    index: int
    """Its index among the job's hosts, or among the pods of its role."""
    processes: int
    """Number of ranks in it."""
    node: str
    """Node it is bound to; empty before."""
    state: str
    """State: pending, creating, running, succeeded, failed, or ending."""
    reason: str = ""
    """Kubernetes' reason for waiting or failing, such as `ImagePullBackOff`."""
    message: str = ""
    """Kubernetes' message that explains the reason."""
    exit_code: int | None = None
    """Exit code of the container, once it has ended."""
    restarts: int = 0
    """Number of restarts of its container."""
    created: str = ""
    """Creation time (RFC 3339)."""
    finished: str = ""
    """Time at which its container ended (RFC 3339); empty before."""
    has_backoff: bool = False
    """True if the Job controller waits before it replaces the pod."""
    failures: int | None = None
    """Earlier failures of its host that the Job controller counts; None if the pod does not have this number."""
    allowed_failures: int | None = None
    """Maximum number of failures of a host after which the Job controller replaces its pod; None if unknown."""
    fails_job: bool = False
    """True if the Job's failure policy fails the job after the pod's exit code."""
    is_only_rank: bool = False
    """True if its job has no other rank."""
    runs_script: bool = False
    """True if it runs the user's program instead of the trainer."""
    memory_limit: str = ""
    """Memory limit of its container, such as `2Gi`; empty for none."""
    is_deleted: bool = False
    """True if its deletion has begun, for example because its job is stopped."""

    def has_no_restart(self, earlier: int) -> bool:
        """Return True if its host has no restart left. `earlier` is the number of its host's earlier failed pods."""
        return self.allowed_failures is not None and self._earlier_failures(earlier) >= self.allowed_failures

    def _earlier_failures(self, earlier: int) -> int:
        # `failures` also counts failed pods that no longer exist.
        return earlier if self.failures is None else self.failures

    def ends_job(self, earlier: int) -> bool:
        """Return True if its failure fails the job. `earlier` is the number of earlier failures of its host."""
        return self.state == "failed" and not self.is_deleted and (self.fails_job or self.has_no_restart(earlier))

    def backoff(self, earlier: int) -> str:
        """Return when the Job controller replaces the failed pod, or why it does not; empty for other pods.

        `earlier` is the number of earlier failures of its host.
        """
        if self.is_deleted or not (self.has_backoff and self.state == "failed" and self.finished):
            return ""
        if self.has_no_restart(earlier):
            return "Kubernetes does not replace it: the job has no restart left"
        if self.fails_job:
            return "Kubernetes does not replace it after this exit code"
        counted = self._earlier_failures(earlier)
        seconds = min(FIRST_BACKOFF_SECONDS * 2**counted, LONGEST_BACKOFF_SECONDS)
        until = datetime.fromisoformat(self.finished) + timedelta(seconds=seconds)
        return f"Kubernetes replaces it at {until:%H:%M:%S} UTC: {seconds} s after failure {counted + 1} of this host"

    @property
    def place(self) -> tuple[bool, str, int]:
        """Key of its role and index in the job, which sorts workers first. A replacement pod has the same key."""
        return self.role != WORKER, self.role, self.index

    @property
    def label(self) -> str:
        """Its ranks, such as `3` or `4-7`, or its role if it has none."""
        if not self.ranks:
            return self.role if self.role != "server" else f"server-{self.index}"
        return f"{self.ranks[0]}" + (f"-{self.ranks[-1]}" if self.processes > 1 else "")

    @property
    def ranks(self) -> range:
        """Ranks that run in it."""
        if self.role != WORKER:
            return range(0)
        return range(self.index * self.processes, (self.index + 1) * self.processes)

    @property
    def has_log(self) -> bool:
        """True if its container may have a log."""
        return self.state in ("running", "succeeded", "failed", "ending") and bool(self.node)

    @property
    def is_over(self) -> bool:
        """True if it has ended and prints no more."""
        return self.state in ("succeeded", "failed")

    @property
    def why(self) -> str:
        """Reason, exit code and their meaning in one line; empty if it has no problem."""
        if self.exit_code is not None and self.state == "failed":
            reason = f" ({self.reason})" if self.reason not in ("", "Error") else ""
            return f"{self.exit_text(self.exit_code)}{reason}"
        if self.reason == "Evicted" and "memory" in self.message:
            limit = f"its limit of {self.memory_limit}" if self.memory_limit else "a memory limit"
            node = f"The memory of {self.node or 'the node'} ran out"
            return f"Evicted: {self.message} {node}; the container did not reach {limit}"
        return ": ".join(text for text in (self.reason, self.message) if text)

    def exit_text(self, code: int) -> str:
        """Return an exit code of its container, or of a rank in it, with its meaning."""
        return f"exit code {code}: {explain_exit(code, self)}"


def pod_state(pod: Object, job_spec: Object | None = None) -> PodState:
    """Return the state of a pod. `job_spec` is the spec of the Job that created it, if a Job did."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    container = (status.get("containerStatuses") or [{}])[0]
    current = container.get("state", {})
    terminated = current.get("terminated") or {}
    state, reason, message = _state_and_reason(meta, spec, status, current)
    role = meta.get("labels", {}).get(COMPONENT_LABEL, WORKER)
    job_spec, failures = job_spec or {}, meta.get("annotations", {}).get(INDEX_FAILURES)
    action = _failure_action(job_spec, status, terminated.get("exitCode"))
    limit = job_spec.get("backoffLimitPerIndex", job_spec.get("backoffLimit"))
    first = spec["containers"][0]
    words = [*(first.get("command") or []), *(first.get("args") or [])]
    return PodState(
        uid=meta["uid"],
        name=meta["name"],
        owner=owner_of(pod),
        job=meta.get("labels", {}).get(JOB_LABEL, ""),
        role=role,
        index=_index(meta, spec),
        processes=_processes(spec),
        node=spec.get("nodeName", ""),
        state=state,
        reason=reason,
        message=message,
        exit_code=terminated.get("exitCode"),
        restarts=container.get("restartCount", 0),
        created=meta["creationTimestamp"],
        finished=terminated.get("finishedAt") or "",
        has_backoff=failures is not None or role == LAUNCHER,
        failures=None if failures is None else int(failures),
        # The Job controller does not count an ignored failure.
        allowed_failures=None if action == "Ignore" or limit is None else int(limit),
        fails_job=action == "FailJob",
        is_only_rank=_number(spec, "TRAINYARD_HOSTS") == _processes(spec) == 1,
        # Every command that starts the trainer contains `-m trainer` (workloads/command.py).
        runs_script=("-m", "trainer") not in pairwise(words),
        memory_limit=(first.get("resources", {}).get("limits") or {}).get("memory", ""),
        is_deleted="deletionTimestamp" in meta,
    )


def _failure_action(job_spec: Object, status: Object, code: int | None) -> str:
    """Return the action of the first rule of a Job's failure policy that matches a failed pod; empty for none.
    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy"""
    for rule in (job_spec.get("podFailurePolicy") or {}).get("rules") or []:
        conditions = rule.get("onPodConditions") or []
        if any(find_condition(status, each["type"]).get("status") == each["status"] for each in conditions):
            return str(rule["action"])
        codes = rule.get("onExitCodes")
        if codes and code and (code in codes["values"]) == (codes["operator"] == "In"):
            return str(rule["action"])
    return ""


def owner_of(found: Object) -> str:
    """Return the UID of the object that created this one; empty for none."""
    return next((str(each["uid"]) for each in found["metadata"].get("ownerReferences") or []), "")


def _state_and_reason(meta: Object, spec: Object, status: Object, current: Object) -> tuple[str, str, str]:
    """Return the state, reason and message of a pod."""
    phase = status.get("phase", "Pending")
    waiting, terminated = current.get("waiting") or {}, current.get("terminated") or {}
    if phase in ("Succeeded", "Failed"):
        # The pod's own reason (Evicted, DeadlineExceeded, ...) explains more than its container's.
        reason = status.get("reason") or _disruption(status) or terminated.get("reason", "")
        message = status.get("message") or terminated.get("message", "")
        # If the kernel kills only one process of a container, the container may exit with 0 and reason OOMKilled.
        is_plain = reason == "Completed" or (phase == "Succeeded" and reason == OUT_OF_MEMORY)
        return phase.lower(), "" if is_plain else reason, one_line(message)
    if "deletionTimestamp" in meta:
        return "ending", "Terminating", one_line(_disruption(status))
    if phase == "Running" and not waiting:
        return "running", "", ""
    if waiting:
        reason, message = waiting.get("reason", ""), one_line(waiting.get("message", ""))
        is_creating = reason in ("ContainerCreating", "PodInitializing")
        return ("creating", "", message) if is_creating else ("pending", reason, message)
    scheduled = find_condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return "pending", scheduled.get("reason", "Unschedulable"), one_line(scheduled.get("message", ""))
    return ("creating" if spec.get("nodeName") else "pending"), "", ""


def _disruption(status: Object) -> str:
    """Return the reason why Kubernetes itself ended the pod (preempted, evicted, node lost); empty if it did not."""
    found = find_condition(status, "DisruptionTarget")
    return str(found.get("reason", "")) if found.get("status") == "True" else ""


def find_condition(status: Object, kind: str) -> Object:
    """Return the condition of one type; empty if it is missing."""
    return next((each for each in status.get("conditions") or [] if each["type"] == kind), {})


def _index(meta: Object, spec: Object) -> int:
    """Return the pod's host index in its job: torchrun's node rank if the operator sets it, else the pod's index."""
    labels = meta.get("labels", {})
    if found := ROLE_INDICES & labels.keys():
        return _number(spec, "PET_NODE_RANK") or int(labels[found.pop()])
    index = int(meta.get("annotations", {}).get(INDEX) or labels.get(INDEX) or "0")
    hosts_per_slice = _number(spec, "TRAINYARD_HOSTS") // int(labels.get(SLICES, "1"))
    return int(labels.get(SLICE_INDEX, "0")) * hosts_per_slice + index


def _processes(spec: Object) -> int:
    return _number(spec, "TRAINYARD_PROCESSES_PER_HOST") or _number(spec, "PET_NPROC_PER_NODE") or 1


def _number(spec: Object, name: str) -> int:
    """Return the number in an environment variable of the first container; 0 if the variable has none."""
    values = [each.get("value", "") for each in spec["containers"][0].get("env") or [] if each["name"] == name]
    return int(values[-1]) if values and str(values[-1]).isdigit() else 0


def exit_codes_of_pods(events: Iterable[Object]) -> dict[str, int]:
    """Return pod name -> last exit code, except 0, from the events of an operator that deletes failed pods."""
    found: dict[str, int] = {}
    for event in sorted(events, key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or ""):
        if match := _EXIT_MESSAGE.fullmatch(event.get("message", "")):
            found[match["pod"]] = int(match["code"])
    return {pod: code for pod, code in found.items() if code}


def latest_pods(pods: Iterable[PodState]) -> list[PodState]:
    """Return the newest pod of each role and index in one job, workers first."""
    found: dict[tuple[bool, str, int], PodState] = {}
    for pod in pods:
        known = found.get(pod.place)
        if known is None or (pod.created, not pod.is_over) >= (known.created, not known.is_over):
            found[pod.place] = pod
    return [found[place] for place in sorted(found)]


def count_restarts(pods: Iterable[PodState]) -> int:
    """Return the largest number of restarts of one role and index. Hosts that restart together thus count once."""
    by_place: dict[tuple[bool, str, int], int] = {}
    for pod in pods:
        by_place[pod.place] = by_place.get(pod.place, -1) + 1 + pod.restarts
    return max(by_place.values(), default=0)


def seconds_between(start: str, end: str) -> float | None:
    """Return the seconds from one API time to another; None if either is missing."""
    if not start or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def time_of(text: str) -> float | None:
    """Return the seconds since 1970 of an API time; None if it is empty or invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def one_line(text: str) -> str:
    """Return `text` with a single space for every line break or run of spaces."""
    return " ".join(text.split())


def silent_since(node: Object) -> str:
    """Return the time (RFC 3339) at which a node's kubelet stopped answering; empty if it answers:
    https://kubernetes.io/docs/reference/node/node-status/#condition"""
    ready = find_condition(node.get("status", {}), "Ready")
    return str(ready.get("lastTransitionTime") or "an unknown time") if ready.get("status") == "Unknown" else ""


def node_line(node: Object) -> tuple[str, bool]:
    """Return a description of one node, and True if it is ready."""
    conditions = {each["type"]: each for each in node.get("status", {}).get("conditions") or []}
    ready = conditions.get("Ready", {})
    is_ready = ready.get("status") == "True"
    since = silent_since(node)
    state = f"has not answered since {since}" if since else "not ready"
    detail = f"{ready.get('reason', 'unknown')}: {ready.get('message', 'no report')}"
    words = "ready" if is_ready else f"{state} ({detail})"
    closed = ", closed to new pods" if node.get("spec", {}).get("unschedulable") else ""
    pressure = [name for name, each in conditions.items() if name.endswith("Pressure") and each["status"] == "True"]
    return f"{node['metadata']['name']} {words}{closed}{''.join(f', {name}' for name in pressure)}", is_ready


def lost_node_advice(nodes: Sequence[Object]) -> str:
    """Return advice about nodes that do not answer, in one line; empty if all do."""
    lost = [str(node["metadata"]["name"]) for node in nodes if silent_since(node)]
    if not lost:
        return ""
    return (
        "Kubernetes recreates the pods of a lost node when the node answers again or is deleted; if its machine is "
        f"gone for good, run `kubectl delete node {' '.join(lost)}` in {make_command('shell')}"
    )


def disk_pressure_advice(nodes: Sequence[Object], folder: str = "") -> str:
    """Return advice about nodes with full disks; empty for none. A local cluster's nodes share the disk of `folder`."""
    full = [
        str(node["metadata"]["name"])
        for node in nodes
        if find_condition(node.get("status", {}), "DiskPressure").get("status") == "True"
    ]
    if not full:
        return ""
    disk = f"the disk of {folder}" if folder else "their disks"
    return f"DiskPressure on {', '.join(full)}: Kubernetes evicts pods and starts none there; free space on {disk}"


def image_pull_advice(pods: Iterable[PodState]) -> str:
    """Return advice about jobs of platform `local` whose images cannot be pulled; empty for none."""
    jobs = sorted({pod.job for pod in pods if pod.reason in ("ErrImagePull", "ImagePullBackOff")})
    if not jobs:
        return ""
    return (
        f"the image of {', '.join(jobs)} is missing: platform `local` cannot pull images from a registry; remove "
        f"`image` or set it to one that Trainyard builds (docs/config.md), and run {make_command('up')}"
    )


def lost_pods(pods: Iterable[PodState], nodes: Sequence[Object]) -> dict[str, str]:
    """Return why pods may have stopped, by uid: their node does not answer or no longer exists."""
    since = {node["metadata"]["name"]: silent_since(node) for node in nodes}
    notes = {}
    for pod in pods:
        if pod.is_over or not pod.node:
            continue
        if pod.node not in since:
            notes[pod.uid] = f"its node {pod.node} no longer exists; Kubernetes replaces the pod within a minute"
        elif since[pod.node]:
            notes[pod.uid] = f"its node {pod.node} has not answered since {since[pod.node]}: see the advice above"
    return notes


PROGRAM_CODES = {DONE: "done", 1: "uncaught error, or another rank failed first; the log of this rank says which"}
"""Meaning of the codes that every Python program uses."""
TRAINER_CODES = {
    **PROGRAM_CODES,
    2: "command line not understood",
    DIVERGED: "diverged: the loss or a weight is not finite",
    DATA_ERROR: "data error",
    SLOW_LINK: "a link between hosts is slower than the job asks for",
    HANG: "hang: a step took too long",
    RESTARTS_USED: "a host was lost and no restart is left",
    STORAGE_ERROR: "storage full or failing",
    PREEMPTED: "preempted, or another rank is gone; a restart continues from the newest checkpoint",
    BAD_CONFIGURATION: "bad configuration: a flag or its value; or a later run of the job has replaced this run",
}
"""Meaning of the trainer's exit codes."""
NON_RETRYABLE_CODES = (DIVERGED, DATA_ERROR, SLOW_LINK, BAD_CONFIGURATION)
"""Codes after which a job of any kind except `mpi-job` and `ray-job` fails without a restart. This includes jobs that
run a script (docs/kinds.md)."""
RETRYABLE_OFFSET = 128
"""Number that `trainer.launch` adds to codes worth a restart. Some operators restart a job only after codes >= 128."""
STOP_CODES = frozenset({DONE, PREEMPTED, PREEMPTED + RETRYABLE_OFFSET, 128 + 15})
"""Codes of a host after a stop request: the trainer's codes, and the code of a program that SIGTERM ends."""
SHELL_CODES = {126: "the command cannot be executed", 127: "the command is not in the image"}
"""Meaning of the codes that every shell and container runtime uses."""
LOST_SHIM_CODE = 255
"""Code that containerd reports if a container's shim is gone and the container's real exit code is unknown:
https://github.com/containerd/containerd/blob/v2.4.2/core/runtime/v2/shim.go, cleanupAfterDeadShim."""
OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container in which the kernel ended a process at the container's memory limit."""
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def explain_exit(code: int, pod: PodState) -> str:
    """Return the meaning of an exit code of a pod's container or of one of its ranks. Add advice if memory ran out.

    Three forms of a code stand for a signal: the negative number, 128 plus the number, and 256 minus the number.
    trainer.launch exits with 256 minus the number if a signal ends a rank and no restart is left.
    """
    signal = -code if code < 0 else code - 128
    if 256 - code in SIGNALS and code != LOST_SHIM_CODE:
        signal = 256 - code
    if pod.exit_code is not None and pod.reason == OUT_OF_MEMORY:
        limit = f"the container reached its limit of {pod.memory_limit}" if pod.memory_limit else "its node had no more"
        return f"out of memory: {limit}; {_raise_memory(pod)}"
    if signal == 9:
        return _killed(pod)
    if signal in SIGNALS:
        return f"ended by {SIGNALS[signal]}"
    if code in SHELL_CODES:
        return SHELL_CODES[code]
    if code == LOST_SHIM_CODE:
        node = pod.node or "its node"
        lost = f"the container's runtime process (containerd-shim) or all of {node} died, and its real code is lost"
        return f"the script's own code, or {lost}" if pod.runs_script else lost
    if code == 1 and pod.is_only_rank:
        return "uncaught error; the log says which"
    if pod.runs_script:
        if code == PREEMPTED:
            return "a stop request (SIGTERM) to the host, the end of another host, or an exit code of the script itself"
        # A job with a launcher is restarted after these codes, too.
        is_final = code in NON_RETRYABLE_CODES and pod.role != LAUNCHER
        own = f"the script's own code{'; Kubernetes does not restart a job after it' if is_final else ''}"
        return PROGRAM_CODES.get(code) or own
    known = TRAINER_CODES.get(code) or TRAINER_CODES.get(code - RETRYABLE_OFFSET)
    return known or "not an exit code of the trainer: the last lines of the log say more"


def _killed(pod: PodState) -> str:
    """Return the meaning of a SIGKILL that was not an OOM kill at the container's limit."""
    if pod.is_deleted:
        return "ended by SIGKILL: it did not end within `grace_seconds` of the request to stop"
    limit = f"its limit of {pod.memory_limit}" if pod.memory_limit else "its memory limit"
    if pod.exit_code is None:
        # Until the container has ended, Kubernetes' reason for its end is not known.
        return f"ended by SIGKILL: the container reached {limit} ({_raise_memory(pod)}), or it was killed by hand"
    return (
        f"ended by SIGKILL: killed by hand, or {pod.node or 'its node'} ran out of memory; "
        f"the container did not reach {limit}, as far as Kubernetes knows"
    )


def _raise_memory(pod: PodState) -> str:
    more = f" above {pod.memory_limit}" if pod.memory_limit else ""
    return f"raise `resources.memory` of job {pod.job}{more}"
