"""Repair of a node that stopped answering: mark it out of service and kill its processes, as clouds do.

Kubernetes has then asked its pods to terminate, but only the node could report that they have ended. No kind of job
recreates a host's pod before that. Once the machine is certain to be off, this module reports the end instead. It sets
the taint `out-of-service`
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown). It also removes
the terminating pods, as Kubernetes' pod garbage collector would within 20 seconds.

The cluster then restarts the node. When the node answers, this module removes the taint.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from infra.local import leftovers
from infra.local.api import MERGE, STRATEGIC_MERGE, ApiUnavailable, NotFound, request
from infra.local.components import READY_URL
from infra.local.settings import ClusterSettings
from infra.local.supervisor import say

SILENT_SECONDS = 31.0
"""Maximum time without an answer from a node whose kubelet runs: the 30 s that jobs tolerate, plus a margin."""
EVERY_SECONDS = 2.0
TAINT: Mapping[str, str] = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "no-answer",
    "effect": "NoExecute",
}
Step = Literal["take out of service", "take in again", "nothing"]


def step_for(node: Mapping[str, Any], now: datetime, has_kubelet: Callable[[], bool]) -> Step:
    """Return the repair step for a node, given its API object.

    A node without a running kubelet cannot answer, so do not wait for it.
    """
    conditions = {each["type"]: each for each in node["status"].get("conditions", [])}
    ready = conditions.get("Ready")
    if ready is None:
        return "nothing"
    if is_out(node):
        return "take in again" if ready["status"] == "True" else "nothing"
    if ready["status"] != "Unknown":
        return "nothing"
    silent = now - datetime.fromisoformat(ready["lastTransitionTime"])
    waits = silent.total_seconds() < SILENT_SECONDS and has_kubelet()
    return "nothing" if waits else "take out of service"


def is_out(node: Mapping[str, Any]) -> bool:
    """Return True if a node is out of service."""
    return any(each["key"] == TAINT["key"] for each in node["spec"].get("taints", []))


def kubelet_runs(settings: ClusterSettings, name: str) -> bool:
    """Return True if a node has a kubelet process, running or stopped."""
    return leftovers.node_program(settings.folder, settings.node_names.index(name), "kubelet") is not None


def end_machine(settings: ClusterSettings, name: str) -> None:
    """Kill process 1 of a node that still runs. This ends all its other processes."""
    process = leftovers.node_process(settings.folder, settings.node_names.index(name))
    if process is not None:
        os.kill(process, signal.SIGKILL)


def remove_pods(settings: ClusterSettings, name: str, server: str) -> None:
    """Mark each terminating pod of a node without a machine as failed, and remove the pod.

    The failure is a disruption, as Kubernetes' pod garbage collector reports it. It does not count against a job's
    restarts.
    """
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "NodeOutOfService",
        "message": f"node {name} was taken out of service",
        "lastTransitionTime": since,
    }
    for pod in request(settings, "GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}", server=server)["items"]:
        about = pod["metadata"]
        if "deletionTimestamp" not in about:
            continue
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
        same = {"uid": about["uid"]}
        try:
            if pod["status"].get("phase") not in ("Failed", "Succeeded"):
                body = {"metadata": same, "status": {"phase": "Failed", "conditions": [ended]}}
                request(settings, "PATCH", f"{path}/status", body, STRATEGIC_MERGE, server=server)
            now = {"gracePeriodSeconds": 0, "preconditions": same}
            request(settings, "DELETE", path, now, "application/json", server=server)
        except NotFound:
            continue  # Kubernetes' pod garbage collector was faster.


def look(settings: ClusterSettings, server: str) -> None:
    """Check each node once and take the necessary repair step."""
    for node in request(settings, "GET", "/api/v1/nodes", server=server)["items"]:
        name = node["metadata"]["name"]
        if name not in settings.node_names:
            continue
        step = step_for(node, datetime.now(UTC), partial(kubelet_runs, settings, name))
        if step == "nothing":
            if is_out(node):
                remove_pods(settings, name, server)
            continue
        if step == "take out of service":
            end_machine(settings, name)
        others = [each for each in node["spec"].get("taints", []) if each["key"] != TAINT["key"]]
        taints = [*others, TAINT] if step == "take out of service" else others
        # With the version, the server rejects the change if the node has changed since this decision.
        metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
        body = {"metadata": metadata, "spec": {"taints": taints}}
        request(settings, "PATCH", f"/api/v1/nodes/{name}", body, MERGE, server=server)
        say(f"{name}: {step}")


def main(folder: Path) -> None:
    """Check the nodes periodically until this process ends."""
    settings = ClusterSettings.load(folder)
    server = READY_URL.removesuffix("/readyz")
    while True:
        try:
            look(settings, server)
        except ApiUnavailable as error:
            say(str(error))
        time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
