"""Waiting until an object is gone."""

import time

from setup.stand_ins.kubernetes.api import ApiError, Unreachable
from setup.stand_ins.kubernetes.awaiting.loop import FIRST_LOOK, LONGEST_LOOK
from setup.stand_ins.kubernetes.objects import Object, pluck
from setup.stand_ins.kubernetes.operation import Operation, PartialFailure


def until_gone(operation: Operation, live: Object, name: str, seconds: float) -> None:
    """Look until the server knows the object no more, or another of its name. Raises PartialFailure."""
    deadline = time.monotonic() + seconds
    uid = pluck(live, "metadata", "uid")
    pause = FIRST_LOOK
    while True:
        try:
            found = operation.cluster.get(live, name)
            if pluck(found, "metadata", "uid") != uid:
                return
            live = found
            operation.say(_status(live))
        except ApiError as error:
            if error.code == 404:
                return
            operation.say(f"unexpected error while checking cluster state: {error}", warning=True)
        except Unreachable as error:
            operation.say(f"unexpected error while checking cluster state: {error}", warning=True)
        if not operation.next_look(pause, deadline):
            break
        pause = min(pause * 2, LONGEST_LOOK)
    finalizers = pluck(live, "metadata", "finalizers") or []
    operation.warn(f"finalizers might be preventing deletion ({', '.join(finalizers)})")
    raise PartialFailure("timed out waiting for the condition", live)


def _status(live: Object) -> str:
    for condition in pluck(live, "status", "conditions") or []:
        if condition.get("status") == "True" and str(condition.get("type", "")).endswith("Remaining"):
            return str(condition.get("message", ""))
    return "Resource scheduled for deletion"
