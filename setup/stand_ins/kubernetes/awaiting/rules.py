"""Which rule awaits which object, when a read looks at it too, and how long anyone waits."""

from collections.abc import Callable
from dataclasses import dataclass

from setup.stand_ins.kubernetes.annotations import SKIP_AWAIT, WAIT_FOR, is_true, timeout
from setup.stand_ins.kubernetes.awaiting import conditions, job, network, pods, simple, workloads
from setup.stand_ins.kubernetes.awaiting.loop import Rule, until
from setup.stand_ins.kubernetes.objects import Object, annotation, name_of
from setup.stand_ins.kubernetes.operation import Operation, PartialFailure


@dataclass(frozen=True)
class Awaited:
    """How objects of a kind are awaited."""

    rule: Callable[[bool], Rule]
    """Makes the rule for one object; the flag says that it is updated, not created."""
    on_read: Rule | None = None
    """A refresh looks once, and an object that is not ready shows as such."""
    seconds: float | None = None
    """A fixed time that no option changes."""


def _same_on_read(rule: Rule) -> Awaited:
    return Awaited(lambda _updating: rule, on_read=rule)


_DEPLOYMENT, _STATEFUL_SET = _same_on_read(workloads.deployment), _same_on_read(workloads.stateful_set)
_INGRESS = Awaited(lambda _updating: network.ingress(settled=False), on_read=network.ingress(settled=True))

AWAITED = {
    "apps/v1/Deployment": _DEPLOYMENT,
    "apps/v1/StatefulSet": _STATEFUL_SET,
    "apps/v1/DaemonSet": _same_on_read(workloads.daemon_set),
    "batch/v1/Job": _same_on_read(job.job),
    "networking.k8s.io/v1/Ingress": _INGRESS,
    "v1/Pod": _same_on_read(pods.pod),
    "v1/Service": Awaited(lambda _updating: network.service(settled=False), on_read=network.service(settled=True)),
    "v1/PersistentVolume": Awaited(lambda _updating: simple.volume, seconds=300),
    "v1/PersistentVolumeClaim": Awaited(lambda updating: simple.claim(updating=updating), seconds=300),
    "v1/ReplicationController": Awaited(lambda _updating: simple.replication_controller, seconds=600),
    "v1/ResourceQuota": Awaited(lambda _updating: simple.quota, seconds=60),
    "v1/Secret": Awaited(lambda _updating: simple.secret, seconds=5),
}
"""Custom resources and all other kinds are ready once they are written, unless `pulumi.com/waitFor` says otherwise."""


DELETED_UNAWAITED = {
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "apps/v1/StatefulSet",
    "batch/v1/Job",
    "v1/Namespace",
    "v1/Pod",
    "v1/ReplicationController",
}
"""Kinds whose deletion is not awaited when their creation is not."""


def _key(live: Object) -> str:
    return f"{live.get('apiVersion')}/{live.get('kind')}"


def until_ready(operation: Operation, inputs: Object, live: Object, custom_timeout: float, *, updating: bool) -> Object:
    """Wait as the object's kind and annotations ask, and return the live object. Raises PartialFailure."""
    if is_true(inputs, SKIP_AWAIT):
        return live
    seconds = timeout(inputs, custom_timeout)
    late = None
    if wait_for := annotation(inputs, WAIT_FOR):
        try:
            rule = conditions.rule_for(wait_for)
        except conditions.WaitForError as error:
            raise PartialFailure(str(error), live) from error
        late = "timed out waiting for the condition"
    elif awaited := AWAITED.get(_key(live)):
        rule = awaited.rule(updating)
        seconds = awaited.seconds or seconds
    else:
        return live
    ready = until(operation, live, rule, seconds, late=late)
    operation.clear_status()
    return ready


def awaits_deletion(inputs: Object) -> bool:
    """Whether the deletion of an object waits until it is gone: `pulumi.com/skipAwait` counts for some kinds only.

    Rule: pulumi-kubernetes, `allowsSkipAwaitWithDelete`, https://github.com/pulumi/pulumi-kubernetes/issues/1232
    """
    return not (is_true(inputs, SKIP_AWAIT) and _key(inputs) in DELETED_UNAWAITED)


def check_on_read(operation: Operation, inputs: Object, live: Object) -> None:
    """Raise PartialFailure when an object that a refresh reads is not ready now."""
    awaited = AWAITED.get(_key(live))
    if awaited is None or awaited.on_read is None or is_true(inputs, SKIP_AWAIT):
        return
    progress = awaited.on_read(operation, live)
    if not progress.ready:
        message = f"Resource '{name_of(live)}' was created but failed to initialize"
        raise PartialFailure(message, live, progress.problems)
