"""When the kinds are ready whose own status says it in a field: volumes and their claims, quotas, tokens."""

from setup.stand_ins.kubernetes.api import ApiError
from setup.stand_ins.kubernetes.awaiting.loop import Progress, Rule
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, pluck
from setup.stand_ins.kubernetes.operation import Operation

STORAGE_CLASS = GroupVersionKind("storage.k8s.io", "v1", "StorageClass")


def volume(_operation: Operation, live: Object) -> Progress:
    """A PersistentVolume is available or bound."""
    phase = pluck(live, "status", "phase")
    return Progress(ready=phase in ("Available", "Bound"), status=f"Waiting for the volume to be available ({phase})")


def claim(*, updating: bool) -> Rule:
    """A PersistentVolumeClaim is bound; while its class waits for a first consumer, being pending is all it can do."""

    def rule(operation: Operation, live: Object) -> Progress:
        phase = pluck(live, "status", "phase")
        if phase == "Bound" and updating:
            return Progress(ready=True)
        mode = _binding_mode(operation, live)
        wanted = "Pending" if mode == "WaitForFirstConsumer" else "Bound"
        return Progress(ready=phase == wanted, status=f"Waiting for the claim to be bound ({phase})")

    return rule


def _binding_mode(operation: Operation, live: Object) -> str:
    name = pluck(live, "spec", "storageClassName")
    if not name:
        return ""
    try:
        return str(operation.cluster.get_named(STORAGE_CLASS, "", name).get("volumeBindingMode", ""))
    except ApiError as error:
        operation.say(f'getting storageclass "{name}": {error}', warning=True)
        return ""


def replication_controller(_operation: Operation, live: Object) -> Progress:
    """As many replicas available as wanted."""
    wanted, available = pluck(live, "spec", "replicas"), pluck(live, "status", "availableReplicas")
    return Progress(ready=wanted == available, status=f"Waiting for replicas ({available or 0}/{wanted} available)")


def quota(_operation: Operation, live: Object) -> Progress:
    """The quota's controller has taken over its limits."""
    ready = pluck(live, "spec", "hard") == pluck(live, "status", "hard")
    return Progress(ready=ready, status="Waiting for the quota to be in force")


def secret(_operation: Operation, live: Object) -> Progress:
    """A service account's token is there; any other Secret is ready as it stands."""
    token = live.get("type") == "kubernetes.io/service-account-token"
    return Progress(ready=not token or bool(live.get("data")), status="Waiting for the token")
