"""When a Deployment, a StatefulSet or a DaemonSet is ready: when its controller has rolled out this very generation."""

from setup.stand_ins.kubernetes.api import ApiError
from setup.stand_ins.kubernetes.awaiting.loop import Progress
from setup.stand_ins.kubernetes.awaiting.pods import is_owned_by, pod_problems
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, namespace_of, pluck
from setup.stand_ins.kubernetes.operation import Operation

REPLICA_SET = GroupVersionKind("apps", "v1", "ReplicaSet")
REVISION = "deployment.kubernetes.io/revision"


def deployment(operation: Operation, live: Object) -> Progress:
    """Available, progressed to its newest ReplicaSet, and all replicas of that one ready."""
    status = live.get("status") or {}
    if not _observed(live):
        return Progress(status="[1/2] Waiting for app ReplicaSet to be available")
    conditions = {entry["type"]: entry for entry in status.get("conditions") or []}
    problems = [
        f"[{entry.get('reason')}] {entry.get('message')}"
        for kind in ("Progressing", "Available", "ReplicaFailure")
        if (entry := conditions.get(kind)) and (entry.get("status") == "True") == (kind == "ReplicaFailure")
    ]
    revision = (pluck(live, "metadata", "annotations") or {}).get(REVISION)
    newest = _replica_sets(operation, live).get(revision)
    progressing = conditions.get("Progressing", {})
    progressed = progressing.get("status") == "True" and progressing.get("reason") == "NewReplicaSetAvailable"
    available = conditions.get("Available", {}).get("status") == "True"
    if newest is not None:
        wanted = pluck(newest, "spec", "replicas") or 0
        ready = pluck(newest, "status", "readyReplicas") or 0
        current = ready >= wanted and not status.get("unavailableReplicas")
        if available and current and (progressed or revision == "1"):
            return Progress(ready=True)
        text = f"Waiting for app ReplicaSet to be available ({ready}/{wanted} Pods available)"
    else:
        text = "Waiting for app ReplicaSet to be available"
    shown = pod_problems(operation, newest) if newest is not None else []
    return Progress(status=(shown or problems or [f"[1/2] {text}"])[-1], problems=[*problems, *shown])


def _replica_sets(operation: Operation, live: Object) -> dict[str | None, Object]:
    try:
        listed = operation.cluster.list_kind(REPLICA_SET, namespace_of(live))
    except ApiError:
        return {}
    return {
        (pluck(entry, "metadata", "annotations") or {}).get(REVISION): entry
        for entry in listed
        if is_owned_by(entry, live)
    }


def stateful_set(operation: Operation, live: Object) -> Progress:
    """As many replicas as wanted, all ready and all of the newest revision."""
    if not _observed(live):
        return Progress(status="[1/2] Waiting for StatefulSet to create Pods")
    status = live.get("status") or {}
    wanted = pluck(live, "spec", "replicas") or 0
    generation = pluck(live, "metadata", "generation") or 0
    counts = {name: status.get(name) or 0 for name in ("replicas", "readyReplicas", "currentReplicas")}
    current, newest = status.get("currentRevision", ""), status.get("updateRevision", "")
    if generation > 1 and pluck(live, "spec", "updateStrategy", "type") == "OnDelete":
        revised, complete = True, counts["replicas"] == counts["readyReplicas"] == wanted
    else:
        revised, complete = current != "" and current == newest, all(count == wanted for count in counts.values())
    if revised and complete:
        return Progress(ready=True)
    ready = counts["readyReplicas"] if revised else min(counts["readyReplicas"], status.get("updatedReplicas") or 0)
    problems = [] if complete else [f"{ready} out of {wanted} replicas succeeded readiness checks"]
    if not revised:
        problems.append(f'StatefulSet controller failed to advance from revision "{current}" to revision "{newest}"')
    problems += pod_problems(operation, live)
    if generation <= 1:
        text = f"[1/2] Waiting for StatefulSet to create Pods ({ready}/{wanted} Pods ready)"
    elif not complete:
        text = f"[1/3] Waiting for StatefulSet update to roll out ({ready}/{wanted} Pods ready)"
    else:
        text = "[2/3] Waiting for StatefulSet to update .status.currentRevision"
    return Progress(status=text, problems=problems)


def daemon_set(operation: Operation, live: Object) -> Progress:
    """A pod of this generation scheduled, available and ready on every node that wants one."""
    status = live.get("status") or {}
    if not _observed(live):
        return Progress(status="DaemonSet generation is not observed yet")
    wanted = status.get("desiredNumberScheduled")
    if wanted is None:
        return Progress(status="Missing .status.desiredNumberScheduled")
    for name, what in (
        ("currentNumberScheduled", "Current"),
        ("updatedNumberScheduled", "Updated"),
        ("numberAvailable", "Available"),
        ("numberReady", "Ready"),
    ):
        count = status.get(name) or 0
        if count < wanted:
            problems = pod_problems(operation, live)
            return Progress(status=(problems or [f"{what}: {count}/{wanted}"])[-1], problems=problems)
    return Progress(ready=True)


def _observed(live: Object) -> bool:
    observed = pluck(live, "status", "observedGeneration")
    return observed is not None and observed >= (pluck(live, "metadata", "generation") or 0)
