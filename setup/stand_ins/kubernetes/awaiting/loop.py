"""The loop that looks at an object, again and again, until a rule calls it ready or failed, or time is up."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from setup.stand_ins.kubernetes.api import ApiError, Unreachable
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, name_of, namespace_of, pluck
from setup.stand_ins.kubernetes.operation import Operation, PartialFailure

FIRST_LOOK = 0.1
LONGEST_LOOK = 0.5
"""Seconds between two looks: they double from the first to the longest, which costs the server two GETs a second."""
EVENTS_EVERY = 3.0
"""Seconds between two looks at the events about the object."""
EVENT = GroupVersionKind("", "v1", "Event")


@dataclass
class Progress:
    """What a rule says of an object at one look."""

    ready: bool = False
    status: str = ""
    """Shown in the resource's row."""
    problems: list[str] = field(default_factory=list)
    """Why it is not ready; they go into the error when time is up."""
    failed: bool = False
    """No use to wait on."""


Rule = Callable[[Operation, Object], Progress]


def until(operation: Operation, live: Object, rule: Rule, seconds: float, *, late: str | None = None) -> Object:
    """Look at the object until the rule is satisfied and return it as it is then. Raises PartialFailure."""
    deadline = time.monotonic() + seconds
    events_due = time.monotonic() + EVENTS_EVERY
    pause = FIRST_LOOK
    warnings: list[str] = []
    while True:
        progress = rule(operation, live)
        if progress.ready:
            return live
        if time.monotonic() >= events_due:
            warnings, events_due = _warnings(operation, live), time.monotonic() + EVENTS_EVERY
        if status := next(iter(warnings), progress.status):
            operation.say(status, warning=bool(warnings))
        if progress.failed:
            message = f"Resource '{name_of(live)}' was created but failed to initialize"
            raise PartialFailure(message, live, progress.problems)
        if not operation.next_look(pause, deadline):
            break
        pause = min(pause * 2, LONGEST_LOOK)
        try:
            live = operation.cluster.get(live)
        except Unreachable as error:
            operation.say(str(error), warning=True)
    message = late or f"'{name_of(live)}' timed out waiting to be Ready"
    if operation.cancelled.is_set():
        message = f'Resource operation was cancelled for "{name_of(live)}"'
    raise PartialFailure(message, live, [*progress.problems, *_warnings(operation, live)])


def _warnings(operation: Operation, live: Object) -> list[str]:
    """What the cluster warns of about the object, the latest first: a Job whose pods are refused says so only here."""
    about = f"involvedObject.uid={pluck(live, 'metadata', 'uid')},type=Warning"
    try:
        events = operation.cluster.list_kind(EVENT, namespace_of(live), fieldSelector=about)
    except (ApiError, Unreachable):
        return []
    events.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), reverse=True)
    return list(dict.fromkeys(f"[{event.get('reason')}] {event.get('message')}" for event in events))
