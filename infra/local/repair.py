"""Takes a node that stopped answering out of service, as a cloud repairs its machines: what is left of it is ended.

Its pods have been told to go by then, but only the node could say that they have ended, and no kind of job makes a
host's pod again before that. Once the machine is certain to be off, the taint `out-of-service` says it in its place
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown). The cluster
starts the node anew, and the taint goes when it answers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from infra.local import traces
from infra.local.api import MERGE, ApiUnavailable, request
from infra.local.programs import READY_URL
from infra.local.settings import ClusterSettings
from infra.local.supervisor import say

SILENT_SECONDS = 32.0
"""How long a node may be without an answer: the 30 s for which jobs bear it, and a moment for its pods to be told."""
EVERY_SECONDS = 5.0
TAINT: Mapping[str, str] = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "no-answer",
    "effect": "NoExecute",
}
Step = Literal["take out of service", "take in again", "nothing"]


def step_for(node: Mapping[str, Any], now: datetime) -> Step:
    """What to do about a node as the API server describes it."""
    conditions = {each["type"]: each for each in node["status"].get("conditions", [])}
    ready = conditions.get("Ready")
    if ready is None:
        return "nothing"
    out = any(each["key"] == TAINT["key"] for each in node["spec"].get("taints", []))
    if out:
        return "take in again" if ready["status"] == "True" else "nothing"
    since = datetime.fromisoformat(ready["lastTransitionTime"])
    silent = ready["status"] == "Unknown" and (now - since).total_seconds() >= SILENT_SECONDS
    return "take out of service" if silent else "nothing"


def end_machine(settings: ClusterSettings, name: str) -> None:
    """Kill process 1 of a node that runs still, and with it all that is inside."""
    process = traces.node_process(settings.folder, settings.node_names.index(name))
    if process is not None:
        os.kill(process, signal.SIGKILL)


def look(settings: ClusterSettings, server: str) -> None:
    """Look at each node once and do what is to be done."""
    for node in request(settings, "GET", "/api/v1/nodes", server=server)["items"]:
        step, name = step_for(node, datetime.now(UTC)), node["metadata"]["name"]
        if step == "nothing" or name not in settings.node_names:
            continue
        if step == "take out of service":
            end_machine(settings, name)
        others = [each for each in node["spec"].get("taints", []) if each["key"] != TAINT["key"]]
        taints = [*others, TAINT] if step == "take out of service" else others
        # The version makes the server refuse what was decided by a node that has changed since.
        metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
        body = {"metadata": metadata, "spec": {"taints": taints}}
        request(settings, "PATCH", f"/api/v1/nodes/{name}", body, MERGE, server=server)
        say(f"{name}: {step}")


def main(folder: Path) -> None:
    """Look again and again until this process is ended."""
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
