"""Repair of a node that stopped answering: kill its processes and take it out of service, as clouds do.

Kubernetes marks the pods of such a node as terminating, but only the node can report the end of these pods. Until then,
no job controller recreates the pods. This module therefore kills the node's processes, and then reports the end of its
pods. It sets the taint `out-of-service`
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown) and removes the
terminating pods, as Kubernetes' pod garbage collector would within 20 seconds.

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
from infra.local.api import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiUnavailable, NotFound, request
from infra.local.key_files import CONTROL_PLANE_URL
from infra.local.settings import ClusterSettings
from infra.local.supervisor import write_log

MAX_SILENT_SECONDS = 31.0
"""Maximum seconds that a node with a kubelet process may be `Unknown`: the 30 s that jobs tolerate, and a margin."""
POLL_SECONDS = 2.0
TAINT: Mapping[str, str] = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "no-answer",
    "effect": "NoExecute",
}
Step = Literal["take out of service", "return to service", "nothing"]


def step_for(node: Mapping[str, Any], now: datetime, has_kubelet: Callable[[], bool]) -> Step:
    """Return the repair step for a node, given its API object.

    Do not wait for a node without a kubelet process: such a node cannot answer.
    """
    conditions = {condition["type"]: condition for condition in node["status"].get("conditions", [])}
    ready = conditions.get("Ready")
    if ready is None:
        return "nothing"
    if is_out_of_service(node):
        return "return to service" if ready["status"] == "True" else "nothing"
    if ready["status"] != "Unknown":
        return "nothing"
    silence = now - datetime.fromisoformat(ready["lastTransitionTime"])
    should_wait = silence.total_seconds() < MAX_SILENT_SECONDS and has_kubelet()
    return "nothing" if should_wait else "take out of service"


def is_out_of_service(node: Mapping[str, Any]) -> bool:
    """Return True if a node is out of service."""
    return any(taint["key"] == TAINT["key"] for taint in node["spec"].get("taints", []))


def has_kubelet_process(settings: ClusterSettings, name: str) -> bool:
    """Return True if a node has a kubelet process, even if a signal suspended the process."""
    return leftovers.node_program(settings.folder, settings.node_names.index(name), "kubelet") is not None


def kill_node(settings: ClusterSettings, name: str) -> None:
    """Kill process 1 of a node, if it runs. This ends all other processes of the node."""
    process = leftovers.node_process(settings.folder, settings.node_names.index(name))
    if process is not None:
        os.kill(process, signal.SIGKILL)


def remove_pods(settings: ClusterSettings, name: str, server: str) -> None:
    """Mark each terminating pod of a killed node as failed, and remove the pod.

    The failure is a disruption, as Kubernetes' pod garbage collector reports it. Disruptions do not count against a
    job's restarts.
    """
    disruption = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "NodeOutOfService",
        "message": f"node {name} was taken out of service",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    for pod in request(settings, "GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}", server=server)["items"]:
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata:
            continue
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        same_pod = {"uid": metadata["uid"]}
        try:
            if pod["status"].get("phase") not in ("Failed", "Succeeded"):
                body = {"metadata": same_pod, "status": {"phase": "Failed", "conditions": [disruption]}}
                request(settings, "PATCH", f"{path}/status", body, STRATEGIC_MERGE_PATCH, server=server)
            options = {"gracePeriodSeconds": 0, "preconditions": same_pod}
            request(settings, "DELETE", path, options, "application/json", server=server)
        except NotFound:
            continue  # Kubernetes' pod garbage collector was faster.


def repair_nodes(settings: ClusterSettings, server: str) -> None:
    """Check each node once and do its repair step."""
    for node in request(settings, "GET", "/api/v1/nodes", server=server)["items"]:
        name = node["metadata"]["name"]
        if name not in settings.node_names:
            continue
        step = step_for(node, datetime.now(UTC), partial(has_kubelet_process, settings, name))
        if step == "nothing":
            if is_out_of_service(node):
                remove_pods(settings, name, server)
            continue
        if step == "take out of service":
            kill_node(settings, name)
        other_taints = [taint for taint in node["spec"].get("taints", []) if taint["key"] != TAINT["key"]]
        taints = [*other_taints, TAINT] if step == "take out of service" else other_taints
        # With the version, the server rejects the patch if the node has changed since the read.
        metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
        body = {"metadata": metadata, "spec": {"taints": taints}}
        request(settings, "PATCH", f"/api/v1/nodes/{name}", body, MERGE_PATCH, server=server)
        write_log(f"{name}: {step}")


def main(folder: Path) -> None:
    """Check the nodes periodically until this process ends."""
    settings = ClusterSettings.load(folder)
    server = CONTROL_PLANE_URL
    while True:
        try:
            repair_nodes(settings, server)
        except ApiUnavailable as error:
            write_log(str(error))
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
