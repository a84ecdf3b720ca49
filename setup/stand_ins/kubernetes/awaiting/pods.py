"""What is wrong with pods, in words: for a Pod that is awaited and for the pods of a workload that is."""

from setup.stand_ins.kubernetes.api import ApiError
from setup.stand_ins.kubernetes.awaiting.loop import Progress
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, name_of, namespace_of, pluck
from setup.stand_ins.kubernetes.operation import Operation

POD = GroupVersionKind("", "v1", "Pod")


def qualified_name(live: Object) -> str:
    """The name as messages have it: with the namespace unless that is the default one."""
    namespace = namespace_of(live)
    return name_of(live) if namespace in ("", "default") else f"{namespace}/{name_of(live)}"


def is_owned_by(live: Object, owner: Object) -> bool:
    """Whether the object names the other as its owner; an owner's owner does not count."""
    uid = pluck(owner, "metadata", "uid")
    return any(entry.get("uid") == uid for entry in pluck(live, "metadata", "ownerReferences") or [])


def pod(_operation: Operation, live: Object) -> Progress:
    """A Pod is ready when it is scheduled, initialized and ready, or has succeeded."""
    name = qualified_name(live)
    conditions = {entry["type"]: entry for entry in pluck(live, "status", "conditions") or []}
    steps = (("PodScheduled", "be scheduled"), ("Initialized", "be initialized"), ("Ready", "be ready"))
    for kind, what in steps:
        condition = conditions.get(kind)
        succeeded = kind == "Ready" and pluck(live, "status", "phase") == "Succeeded"
        if (condition and condition.get("status") == "True") or succeeded:
            continue
        problems = [] if condition is None else _problems(live, condition, scheduling=kind == "PodScheduled")
        return Progress(status=problems[0] if problems else f'Waiting for Pod "{name}" to {what}', problems=problems)
    return Progress(ready=True)


def pod_problems(operation: Operation, owner: Object) -> list[str]:
    """What is wrong with the pods that the object owns; nothing where the user may not list pods."""
    try:
        pods = operation.cluster.list_kind(POD, namespace_of(owner))
    except ApiError:
        return []
    return [problem for live in pods if is_owned_by(live, owner) for problem in pod(operation, live).problems]


def _problems(live: Object, condition: Object, *, scheduling: bool) -> list[str]:
    message = condition.get("message", "") if condition.get("reason") else ""
    if scheduling:
        return [message] if message else []
    causes = [cause for entry in pluck(live, "status", "containerStatuses") or [] for cause in _container_causes(entry)]
    if not causes and not condition.get("message"):
        return []
    return [f"[Pod {qualified_name(live)}]: {message}" + "\n".join(causes)]


def _container_causes(status: Object) -> list[str]:
    if status.get("ready"):
        return []
    causes = []
    waiting = pluck(status, "state", "waiting")
    if waiting and waiting.get("reason") != "ContainerCreating":
        causes.append(f"[{waiting.get('reason', '')}] {waiting.get('message', '')}")
    ended = pluck(status, "state", "terminated")
    if ended and ended.get("reason"):
        exited = f'container "{status.get("name")}" completed with exit code {ended.get("exitCode")}'
        causes.append(f"[{ended['reason']}] {ended['message']}" if ended.get("message") else exited)
    if last := pluck(status, "lastState", "terminated"):
        causes.append(
            f'container "{status.get("name")}" terminated at {last.get("finishedAt")} '
            f"({last.get('reason', '')}: exit code {last.get('exitCode')})"
        )
    return causes
