"""When a Service or an Ingress is ready: when its endpoints have settled and its address is there."""

import time

from setup.stand_ins.kubernetes.api import ApiError
from setup.stand_ins.kubernetes.awaiting.loop import Progress, Rule
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, name_of, namespace_of, pluck
from setup.stand_ins.kubernetes.operation import Operation

SETTLING = 10.0
"""Seconds without a change of the endpoints."""
ENDPOINTS = GroupVersionKind("", "v1", "Endpoints")
SERVICE = GroupVersionKind("", "v1", "Service")
NO_PODS = (
    "Service does not target any Pods. Selected Pods may not be ready, or field '.spec.selector' may not match labels "
    "on any Pods"
)


def service(*, settled: bool) -> Rule:
    """The rule for one Service; `settled` for a look at its present state only."""
    seen: dict[str, float] = {}

    def rule(operation: Operation, live: Object) -> Progress:
        balanced = pluck(live, "spec", "type") == "LoadBalancer"
        addressed = not balanced or bool(pluck(live, "status", "loadBalancer", "ingress"))
        headless = pluck(live, "spec", "clusterIP") == "None"
        if headless or pluck(live, "spec", "type") == "ExternalName" or not pluck(live, "spec", "selector"):
            return Progress(ready=addressed, status="[2/3] Attempting to allocate IP address to Service")
        endpoints = _endpoints(operation, live)
        version = str(pluck(endpoints, "metadata", "resourceVersion"))
        changed = seen.setdefault(version, time.monotonic())
        quiet = endpoints is not None and (settled or time.monotonic() - changed >= SETTLING)
        subsets = pluck(endpoints, "subsets") or []
        pending = any(subset.get("notReadyAddresses") for subset in subsets)
        targets = any(subset.get("addresses") for subset in subsets)
        if addressed and quiet and not pending:
            return Progress(ready=True)
        problems = [] if targets else [NO_PODS]
        if not addressed:
            problems.append("Service was not allocated an IP address; does your cloud provider support this?")
        if quiet and targets:
            return Progress(status="[2/3] Attempting to allocate IP address to Service", problems=problems)
        return Progress(status="[1/3] Finding Pods to direct traffic to", problems=problems)

    return rule


def ingress(*, settled: bool) -> Rule:
    """The rule for one Ingress; `settled` for a look at its present state only."""
    started = time.monotonic()

    def rule(operation: Operation, live: Object) -> Progress:
        patient = settled or time.monotonic() - started >= SETTLING
        missing = [name for name in _backends(live) if not _is_served(operation, live, name)]
        for name in missing if patient else []:
            operation.say(f'No matching service found for ingress rule: "{name}"', warning=True)
        addressed = bool(pluck(live, "status", "loadBalancer", "ingress"))
        if addressed and (patient or not missing):
            return Progress(ready=True)
        problems = []
        if missing and not patient:
            problems.append("Ingress has at least one rule with an unavailable target endpoint.")
        if not addressed:
            problems.append("Ingress .status.loadBalancer field was not updated with a hostname/IP address.")
        if missing and not patient:
            return Progress(status="[1/3] Finding a matching service for each Ingress path", problems=problems)
        return Progress(status="[2/3] Waiting for update of .status.loadBalancer with hostname/IP", problems=problems)

    return rule


def _endpoints(operation: Operation, live: Object, name: str = "") -> Object | None:
    try:
        return operation.cluster.get_named(ENDPOINTS, namespace_of(live), name or name_of(live))
    except ApiError:
        return None


def _backends(live: Object) -> list[str]:
    paths = [path for rule in pluck(live, "spec", "rules") or [] for path in pluck(rule, "http", "paths") or []]
    names = [pluck(path, "backend", "service", "name") or pluck(path, "backend", "serviceName") for path in paths]
    return [name for name in names if name]


def _is_served(operation: Operation, live: Object, name: str) -> bool:
    if _endpoints(operation, live, name) is not None:
        return True
    try:
        target = operation.cluster.get_named(SERVICE, namespace_of(live), name)
    except ApiError:
        return False
    return bool(pluck(target, "spec", "type") == "ExternalName")
