"""Simulation of GKE's webhook for TPU pods. It adds environment variables with rank, host names and topology."""

from __future__ import annotations

import json
import ssl
import sys
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from infra.hardware.tpus import GENERATIONS, RESOURCE, tpu_slice

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET = "jobset.sigs.k8s.io"
MEGASCALE_PORT = 8080


def tpu_environment(pod: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables that GKE adds to the containers of a pod with TPUs; empty for other pods.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice
    """
    selector = pod["spec"].get("nodeSelector") or {}
    accelerator, topology = selector.get(ACCELERATOR), selector.get(TOPOLOGY)
    if not any(_chips(each) for each in pod["spec"]["containers"]) or not accelerator or not topology:
        return {}
    row = next((each for each in GENERATIONS.values() if each.gke_accelerator == accelerator), None)
    if row is None:
        return {}
    try:
        found = tpu_slice(row.name, topology)
    except ValueError:
        return {}
    variables = {"TPU_TOPOLOGY": topology, "TPU_ACCELERATOR_TYPE": found.accelerator_type, "TPU_SKIP_MDS_QUERY": "true"}
    metadata = pod["metadata"]
    index = (metadata.get("annotations") or {}).get(COMPLETION_INDEX)
    job, subdomain = (metadata.get("labels") or {}).get("batch.kubernetes.io/job-name"), pod["spec"].get("subdomain")
    if found.hosts == 1:
        return {**variables, "TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    if index is None or not job or not subdomain:
        return variables
    names = [f"{job}-{rank}.{subdomain}" for rank in range(found.hosts)]
    variables |= {"TPU_WORKER_ID": index, "TPU_WORKER_HOSTNAMES": ",".join(names)}
    return {**variables, **_slices(metadata, subdomain)}


def _slices(metadata: dict[str, Any], subdomain: str) -> dict[str, str]:
    """Return the variables that connect the slices of a JobSet with one slice per Job."""
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    count = annotations.get(f"{JOBSET}/replicatedjob-replicas") or labels.get(f"{JOBSET}/replicatedjob-replicas")
    if EXCLUSIVE_TOPOLOGY not in annotations or count is None or int(count) < 2:
        return {}
    first = f"{labels[f'{JOBSET}/jobset-name']}-{labels[f'{JOBSET}/replicatedjob-name']}-0-0.{subdomain}"
    return {
        "MEGASCALE_NUM_SLICES": count,
        "MEGASCALE_SLICE_ID": labels[f"{JOBSET}/job-index"],
        "MEGASCALE_COORDINATOR_ADDRESS": f"{first}:{MEGASCALE_PORT}",
    }


def _chips(container: dict[str, Any]) -> int:
    resources = container.get("resources") or {}
    return int({**(resources.get("requests") or {}), **(resources.get("limits") or {})}.get(RESOURCE, 0))


def patches(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return JSON patches that add the environment variables to each container with TPUs.

    Keep the variables that a container already sets.
    """
    variables = tpu_environment(pod)
    found: list[dict[str, Any]] = []
    for number, container in enumerate(pod["spec"]["containers"]):
        if not variables or not _chips(container):
            continue
        present = {each["name"] for each in container.get("env") or []}
        added = [{"name": name, "value": value} for name, value in variables.items() if name not in present]
        path = f"/spec/containers/{number}/env"
        value = [*added, *(container.get("env") or [])]
        found.append({"op": "replace" if container.get("env") else "add", "path": path, "value": value})
    return found


class Handler(BaseHTTPRequestHandler):
    """HTTP handler of admission reviews."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer an admission review."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        if found := patches(request["object"]):
            response |= {"patchType": "JSONPatch", "patch": b64encode(json.dumps(found).encode()).decode()}
        answer = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def main(address: str, port: int, certificate: str, key: str) -> None:
    """Serve until this process ends."""
    server = ThreadingHTTPServer((address, port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
