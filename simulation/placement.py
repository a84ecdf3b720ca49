"""Pods in the cluster of `make rehearse`, waits for their placement, and a simulation of GKE's cluster autoscaler."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from infra.local.api import NotFound, annotate, apply, request
from infra.local.settings import ClusterSettings
from infra.naming import JOB_LABEL
from simulation.cloud.gcp import NODE_POOL, max_nodes
from simulation.cloud.model import CloudState, SimulatedResource, read_state, value_at
from simulation.cluster.control_plane import settings_of
from simulation.cluster.effects import GKE_POOL_LABEL, gke_nodes, scale, with_topology
from simulation.cluster.init import MAY_END_ANNOTATION

REJECTED_SECONDS = 3.0
"""Seconds without a change after which `wait_for_pods` returns, if all expected pods exist and the scheduler rejects
each pending pod."""
UNCHANGED_SECONDS = 30.0
"""Seconds without a change after which `wait_for_pods` returns in other cases. A controller may retry until then."""
_METADATA_FIELD = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")
PROVISIONING_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation with the name of the provisioning request that a pod consumes:
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
"""
BUCKET_VARIABLE = "TRAINYARD_BUCKET"
"""Environment variable with the URL of a job's bucket."""
ACCELERATORS = ("nvidia.com/gpu", "google.com/tpu", "vpc.amazonaws.com/efa")


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Pod of a rehearsal's cluster."""

    name: str
    namespace: str
    job: str
    """Job of Trainyard that the pod belongs to; empty for other pods."""
    node: str
    """Node of the pod; empty while it has none."""
    phase: str
    accelerators: Mapping[str, str]
    environment: Mapping[str, str]
    """Environment variables of the pod about its bucket, TPUs and slices."""
    why_pending: str
    """Scheduler's reason why the pod is pending; empty if there is none."""
    provisioning_request: str
    """Name of the provisioning request that the pod consumes; empty if none."""


def pods(settings: ClusterSettings) -> list[Pod]:
    """Return all pods of the cluster."""
    found = request(settings, "GET", "/api/v1/pods")["items"]
    return [_pod(each) for each in sorted(found, key=lambda each: str(each["metadata"]["name"]))]


def _pod(item: dict[str, Any]) -> Pod:
    accelerators: dict[str, str] = {}
    variables: dict[str, str] = {}
    for container in item["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        accelerators |= {name: str(limits[name]) for name in ACCELERATORS if name in limits}
        variables |= {
            each["name"]: _value(each, item["metadata"])
            for each in container.get("env") or []
            if each["name"].startswith(("TPU_", "MEGASCALE_", BUCKET_VARIABLE))
        }
    conditions = {each["type"]: each for each in item["status"].get("conditions") or []}
    unscheduled = conditions.get("PodScheduled", {})
    return Pod(
        name=item["metadata"]["name"],
        namespace=item["metadata"]["namespace"],
        job=(item["metadata"].get("labels") or {}).get(JOB_LABEL, ""),
        node=item["spec"].get("nodeName", ""),
        phase=item["status"].get("phase", ""),
        accelerators=accelerators,
        environment=variables,
        why_pending=unscheduled.get("message", "") if unscheduled.get("status") == "False" else "",
        provisioning_request=(item["metadata"].get("annotations") or {}).get(PROVISIONING_REQUEST, ""),
    )


def _value(variable: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Return the value of a variable, which may refer to one of the pod's labels or annotations."""
    path = value_at(variable, "valueFrom.fieldRef.fieldPath") or ""
    if found := _METADATA_FIELD.fullmatch(path):
        return str((metadata.get(found["map"]) or {}).get(found["key"], ""))
    return str(variable.get("value", ""))


def queued_jobs(settings: ClusterSettings) -> set[str]:
    """Return the jobs for which Kueue has not reserved quota. Leave out jobs that wait only for nodes."""
    found = request(settings, "GET", "/apis/kueue.x-k8s.io/v1beta2/workloads")["items"]
    waiting = set()
    for each in found:
        conditions = {each["type"]: each["status"] for each in each.get("status", {}).get("conditions") or []}
        if conditions.get("QuotaReserved") != "True":
            waiting |= {owner["name"] for owner in each["metadata"].get("ownerReferences") or []}
    return waiting


def wait_for_admission(settings: ClusterSettings, queued: set[str]) -> set[str]:
    """Wait at most UNCHANGED_SECONDS until Kueue admits one of the queued jobs. Return the jobs that still wait."""
    deadline = time.monotonic() + UNCHANGED_SECONDS
    while (waiting := queued_jobs(settings)) >= queued and time.monotonic() < deadline:
        time.sleep(0.3)
    return waiting


def wait_for_pods(
    settings: ClusterSettings,
    expected: Mapping[str, int],
    grow: Callable[[list[Pod]], bool],
    limit: float,
    waiting: Callable[[], set[str]] = set,
) -> list[Pod]:
    """Wait until all pods run or have ended, or no pod changes any more. Wait at most `limit` seconds. Return the pods.

    `expected` has the minimum number of pods of each job. `waiting` returns the jobs in a queue, which need no pods.
    `grow` may add nodes for pending pods, and returns True if it has added any.
    """
    deadline = time.monotonic() + limit
    unchanged_since, before = time.monotonic(), None
    while True:
        found = pods(settings)
        missing = {name for name, count in expected.items() if sum(pod.job == name for pod in found) < count}
        complete = not missing or missing <= waiting()
        if complete and all(pod.phase in ("Running", "Succeeded", "Failed") for pod in found):
            return found
        if found != before or grow([pod for pod in found if not pod.node and pod.why_pending]):
            unchanged_since, before = time.monotonic(), found
        rejected = all(pod.why_pending for pod in found if pod.phase == "Pending")
        wait_seconds = REJECTED_SECONDS if complete and rejected else UNCHANGED_SECONDS
        if time.monotonic() - unchanged_since > wait_seconds or time.monotonic() > deadline:
            return found
        time.sleep(0.3)


def let_jobs_complete(settings: ClusterSettings, found: list[Pod]) -> None:
    """Let the pods of a job succeed if none of the job's pods is pending."""
    pending_jobs = {pod.job for pod in found if pod.phase == "Pending"}
    for pod in found:
        if pod.job and pod.job not in pending_jobs:
            # An operator may delete a job's other pods as soon as the first one succeeds.
            with suppress(NotFound):
                annotate(settings, f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {MAY_END_ANNOTATION: "true"})


def nodes(settings: ClusterSettings) -> list[dict[str, Any]]:
    """Return all nodes of the cluster."""
    found: list[dict[str, Any]] = request(settings, "GET", "/api/v1/nodes")["items"]
    return found


AUTOSCALING_API = "/apis/autoscaling.x-k8s.io/v1"


def grow(folder: Path, pending: list[Pod]) -> bool:
    """Add nodes for the first pending pod that fits a pool below its maximum size. Return True if a pool grew.

    Pools with queued provisioning grow only for provisioning requests.
    """
    if not pending:
        return False
    state = read_state(folder)
    settings = settings_of(state.settings)
    pools = [each for each in _pools_with_autoscaling(state) if not each.inputs.get("queuedProvisioning")]
    sizes = Counter(each["metadata"]["labels"].get(GKE_POOL_LABEL, "") for each in nodes(settings))
    for pod in pending:
        try:
            item = request(settings, "GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        except NotFound:
            # The controller has deleted the pod in the meantime.
            continue
        for pool in pools:
            size = sizes[pool.inputs["name"]]
            node = gke_nodes(with_topology(state, pool.inputs), 1)[0]
            if size < max_nodes(pool.inputs) and node_fits_pod(node, item):
                # GKE adds all nodes of a TPU slice together.
                is_slice = value_at(pool.inputs, "placementPolicy.tpuTopology")
                scale(folder, pool, max_nodes(pool.inputs) if is_slice else size + 1)
                return True
    return False


def grant_requests(folder: Path) -> bool:
    """Grant the first open provisioning request that fits a pool: add all nodes of the pool.

    Return True if there is such a request.
    """
    state = read_state(folder)
    settings = settings_of(state.settings)
    pools = [each for each in _pools_with_autoscaling(state) if each.inputs.get("queuedProvisioning")]
    found = request(settings, "GET", f"{AUTOSCALING_API}/provisioningrequests")["items"] if pools else []
    for open_request in (each for each in found if not (each.get("status") or {}).get("conditions")):
        metadata = open_request["metadata"]
        names = [each["podTemplateRef"]["name"] for each in open_request["spec"]["podSets"]]
        path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates"
        templates = [request(settings, "GET", f"{path}/{name}")["template"] for name in names]
        for pool in pools:
            node = gke_nodes(with_topology(state, pool.inputs), 1)[0]
            if all(node_fits_pod(node, each) for each in templates):
                scale(folder, pool, max_nodes(pool.inputs))
                _grant(settings, metadata)
                return True
    return False


def _grant(settings: ClusterSettings, metadata: dict[str, Any]) -> None:
    """Set the conditions of a provisioning request to accepted and provisioned."""
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
    path = f"{AUTOSCALING_API}/namespaces/{metadata['namespace']}/provisioningrequests/{metadata['name']}/status"
    apply(settings, path, body)


def _pools_with_autoscaling(state: CloudState) -> list[SimulatedResource]:
    return [each for each in state.of_type(NODE_POOL) if each.inputs.get("autoscaling")]


def node_fits_pod(node: dict[str, Any], pod: dict[str, Any]) -> bool:
    """Return True if the pod's selector, affinity, tolerations and requests fit the empty node."""
    labels, spec = node["metadata"]["labels"], pod["spec"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = value_at(spec, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    if terms and not any(all(_matches(labels, each) for each in term.get("matchExpressions") or []) for term in terms):
        return False
    tolerations = spec.get("tolerations") or []
    for taint in node["spec"]["taints"]:
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
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
        for name, text in (value_at(container, "resources.requests") or {}).items():
            total[name] = total.get(name, Decimal(0)) + _quantity(text)
    return total


def _quantity(text: str) -> Decimal:
    # Import here: this slow module is needed only when a pool scales.
    from kubernetes.utils.quantity import parse_quantity

    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]  # has no annotations
