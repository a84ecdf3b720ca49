"""Simulate GKE's cluster autoscaler: add nodes of the first pool that fits a pending pod or a provisioning request."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from infra.local.api import NotFound, apply, request
from infra.local.settings import ClusterSettings
from simulation.cloud.gcp import NODE_POOL, most_nodes
from simulation.cloud.state import CloudState, Record, read_state
from simulation.cluster.control_plane import settings_of
from simulation.cluster.effects import scale, with_topology
from simulation.cluster.nodes import GKE_POOL_LABEL, gke_nodes
from simulation.placement import Pod, nodes

REQUESTS = "/apis/autoscaling.x-k8s.io/v1"


def grow(folder: Path, pending: list[Pod]) -> bool:
    """Add nodes for the first pending pod that fits a pool below its maximum size. Return True if nodes were added.

    Pools with queued provisioning grow only for provisioning requests.
    """
    if not pending:
        return False
    state = read_state(folder)
    settings = settings_of(state.settings)
    pools = [each for each in _pools_with_autoscaling(state) if not each.inputs.get("queuedProvisioning")]
    sizes = _nodes_by_pool(settings)
    for pod in pending:
        try:
            item = request(settings, "GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        except NotFound:
            # The pod's controller has deleted it since.
            continue
        for pool in pools:
            size = sizes[pool.inputs["name"]]
            node = gke_nodes(with_topology(state, pool.inputs), 1)[0]
            if size < most_nodes(pool.inputs) and node_fits_pod(node, item):
                scale(folder, pool, _next_size(pool, size))
                return True
    return False


def grant_requests(folder: Path) -> bool:
    """Grant the first open provisioning request that fits a pool, with all of the pool's nodes.

    Return True if a request was granted.
    """
    state = read_state(folder)
    settings = settings_of(state.settings)
    pools = [each for each in _pools_with_autoscaling(state) if each.inputs.get("queuedProvisioning")]
    found = request(settings, "GET", f"{REQUESTS}/provisioningrequests")["items"] if pools else []
    for open_request in (each for each in found if not (each.get("status") or {}).get("conditions")):
        metadata = open_request["metadata"]
        names = [each["podTemplateRef"]["name"] for each in open_request["spec"]["podSets"]]
        path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates"
        templates = [request(settings, "GET", f"{path}/{name}")["template"] for name in names]
        for pool in pools:
            node = gke_nodes(with_topology(state, pool.inputs), 1)[0]
            if all(node_fits_pod(node, each) for each in templates):
                scale(folder, pool, most_nodes(pool.inputs))
                _grant(settings, metadata)
                return True
    return False


def _grant(settings: ClusterSettings, metadata: dict[str, Any]) -> None:
    """Set the conditions of a provisioning request that report its nodes as ready."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": "the nodes are ready", "lastTransitionTime": now}
        for each in ("Accepted", "Provisioned")
    ]
    body = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": {"conditions": conditions},
    }
    path = f"{REQUESTS}/namespaces/{metadata['namespace']}/provisioningrequests/{metadata['name']}/status"
    apply(settings, path, body)


def _pools_with_autoscaling(state: CloudState) -> list[Record]:
    return [each for each in state.of_type(NODE_POOL) if each.inputs.get("autoscaling")]


def _nodes_by_pool(settings: ClusterSettings) -> Counter[str]:
    """Return the number of nodes in each pool."""
    return Counter(each["metadata"]["labels"].get(GKE_POOL_LABEL, "") for each in nodes(settings))


def _next_size(pool: Record, size: int) -> int:
    """Return the pool's next size: one more node, or all nodes for a TPU slice."""
    return most_nodes(pool.inputs) if (pool.inputs.get("placementPolicy") or {}).get("tpuTopology") else size + 1


def node_fits_pod(node: dict[str, Any], pod: dict[str, Any]) -> bool:
    """Return True if an empty node would accept the pod by selector, affinity, taints and requests."""
    labels, spec = node["metadata"]["labels"], pod["spec"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (required or {}).get("nodeSelectorTerms") or []
    if terms and not any(all(_matches(labels, each) for each in term.get("matchExpressions") or []) for term in terms):
        return False
    for taint in node["spec"]["taints"]:
        if taint["effect"] != "PreferNoSchedule" and not any(
            _tolerates(each, taint) for each in spec.get("tolerations") or []
        ):
            return False
    allocatable = node["status"]["allocatable"]
    return all(_quantity(allocatable.get(name, "0")) >= amount for name, amount in _requests_of(spec).items())


def _matches(labels: dict[str, str], expression: dict[str, Any]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    results = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return results.get(expression["operator"], False)


def _tolerates(toleration: dict[str, Any], taint: dict[str, str]) -> bool:
    if toleration.get("effect") not in (None, taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def _requests_of(spec: dict[str, Any]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in spec["containers"]:
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, Decimal(0)) + _quantity(text)
    return total


def _quantity(text: str) -> Decimal:
    # Slow to import, and needed only when a pool scales.
    from kubernetes.utils.quantity import parse_quantity

    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]  # has no annotations
