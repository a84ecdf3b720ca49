"""State of nodes, from the Kubernetes API, and its meaning for pods on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commands.monitor.pod_state import Object, PodState, find_condition
from infra.make_command import make_command


def silent_since(node: Object) -> str:
    """Return the time since which the node's kubelet has not answered (RFC 3339); empty if it answers.

    Source: https://kubernetes.io/docs/reference/node/node-status/#condition
    """
    ready = find_condition(node.get("status", {}), "Ready")
    return str(ready.get("lastTransitionTime") or "a while") if ready.get("status") == "Unknown" else ""


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


def what_to_do(nodes: Sequence[Object]) -> str:
    """Return advice about nodes that do not answer, in one line; empty if all do."""
    lost = [str(node["metadata"]["name"]) for node in nodes if silent_since(node)]
    if not lost:
        return ""
    return (
        "its pods are made again once Kubernetes knows that they have ended: when it answers again or is deleted; "
        f"where the machine is gone for good, `kubectl delete node {' '.join(lost)}` in {make_command('shell')}"
    )


def lost_pods(pods: Iterable[PodState], nodes: Sequence[Object]) -> dict[str, str]:
    """Return the reasons, by uid, why pods may not run: their node does not answer or no longer exists."""
    since = {node["metadata"]["name"]: silent_since(node) for node in nodes}
    notes = {}
    for pod in pods:
        if pod.is_over or not pod.node:
            continue
        if pod.node not in since:
            notes[pod.uid] = f"its node {pod.node} is gone; the pod is recreated within a minute"
        elif since[pod.node]:
            notes[pod.uid] = f"its node {pod.node} has not answered since {since[pod.node]}: see above what to do"
    return notes
