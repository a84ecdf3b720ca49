"""When a Job is ready: when it is complete. It has failed when its own Failed condition says so."""

from setup.stand_ins.kubernetes.awaiting.loop import Progress
from setup.stand_ins.kubernetes.awaiting.pods import pod_problems, qualified_name
from setup.stand_ins.kubernetes.objects import Object, pluck
from setup.stand_ins.kubernetes.operation import Operation


def job(operation: Operation, live: Object) -> Progress:
    """Look at a Job and, while it runs, at what is wrong with its pods."""
    if is_complete(live):
        return Progress(ready=True)
    status = live.get("status") or {}
    problems = pod_problems(operation, live)
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            text = f"[{condition.get('reason')}] {condition.get('message')}"
            return Progress(failed=True, status=text, problems=[*problems, text])
    if not status.get("startTime"):
        return Progress(status=f'Waiting for Job "{qualified_name(live)}" to start', problems=problems)
    counts = " | ".join(f"{count.capitalize()}: {status.get(count, 0)}" for count in ("active", "succeeded", "failed"))
    text = f'Waiting for Job "{qualified_name(live)}" to succeed ({counts})'
    shown = [problem for problem in problems if "containers with unready status" not in problem]
    return Progress(status=shown[-1] if shown else text, problems=problems)


def is_complete(live: Object) -> bool:
    """Whether the Job has started and succeeded by now."""
    conditions = pluck(live, "status", "conditions") or []
    complete = any(entry.get("type") == "Complete" and entry.get("status") == "True" for entry in conditions)
    return complete and pluck(live, "status", "startTime") is not None
