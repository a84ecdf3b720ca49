"""Start and stop of the cluster behind a simulated GKE or EKS cluster, and the objects that GKE adds.

The rehearsal prepares the cluster before `up`. The simulated cloud starts and stops it.
"""

from __future__ import annotations

import os
import shutil
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from infra.local import lifecycle
from infra.local.api import FIELD_MANAGER, JSON, Client, apply
from infra.local.certificates import make_keys
from infra.local.settings import CONTROL_PLANE_ADDRESS, ClusterSettings
from simulation.cloud.model import Properties, edit_state
from simulation.cluster.init import GKE_FILE, WEBHOOK_PORT

PROGRAM = "simulation.cluster.init"
"""Module that runs as process 1 of the cluster."""
HOST = "127.0.0.1"
NODES = "/api/v1/nodes"
REQUESTS_AT_ONCE = 16
"""Number of requests for nodes that run at the same time."""
GKE_KINDS = (
    # https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
    ("cloud.google.com", "ComputeClass", "computeclasses", "Cluster"),
    # https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    ("autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests", "Namespaced"),
    # https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods
    ("networking.gke.io", "Network", "networks", "Cluster"),
    ("networking.gke.io", "GKENetworkParamSet", "gkenetworkparamsets", "Cluster"),
)
"""Group, kind, plural and scope of each custom resource that GKE adds."""


def settings_of(state_settings: Properties) -> ClusterSettings:
    """Return the settings of the rehearsal's cluster, from the settings of the simulated cloud."""
    return ClusterSettings(**state_settings["cluster"])


def prepare(folder: Path, settings: ClusterSettings) -> Properties:
    """Create the cluster's keys. Return the settings that the simulated cloud needs to start the cluster."""
    lifecycle.stop(settings)
    settings.folder.mkdir(mode=0o700, parents=True)
    make_keys(settings)
    keys = folder / "keys"
    shutil.copytree(settings.keys, keys)
    lifecycle.stop(settings)
    authority = (keys / "ca.crt").read_bytes()
    system = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    (folder / "authorities.pem").write_bytes(authority + (system.read_bytes() if system.is_file() else b""))
    return {
        "endpoint": f"{HOST}:{settings.port}",
        "certificate": b64encode(authority).decode(),
        "cluster": asdict(settings),
    }


def start(folder: Path, owner: str, *, is_gke: bool) -> None:
    """Start the cluster for the cloud resource `owner`. `is_gke` adds the objects and the admission plugin of GKE.

    A rehearsal has at most one cluster.
    """
    with edit_state(folder) as state:
        current = state.settings.get("cluster_of")
        if current in (None, owner):
            state.settings["cluster_of"] = owner
    if current not in (None, owner):
        raise RuntimeError(f"a rehearsal supports one cluster, and {current} exists; rehearse a stack with one cluster")
    settings = settings_of(state.settings)
    if current == owner and lifecycle.is_running(settings):
        return
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings.keys.exists():
        shutil.copytree(folder / "keys", settings.keys)
    settings.save()
    if is_gke:
        (settings.folder / GKE_FILE).touch()
    uid = settings.folder / "uid"
    if not uid.exists():
        uid.write_text(os.urandom(16).hex(), encoding="ascii")
    lifecycle.start(settings, lambda _text: None, program=PROGRAM)
    for path, body in gke_objects(settings) if is_gke else []:
        apply(settings, path, body)


def delete(folder: Path) -> None:
    """Stop and delete the cluster. Another cloud resource can then start a cluster."""
    with edit_state(folder) as state:
        state.settings.pop("cluster_of", None)
    lifecycle.stop(settings_of(state.settings))


def set_nodes(settings: ClusterSettings, label: str, pool: str, wanted: list[dict[str, Any]]) -> None:
    """Create, update and delete nodes so that the pool has exactly the wanted nodes.

    `label` is the label of nodes with the name of their pool.
    """
    with closing(Client(settings)) as api, ThreadPoolExecutor(max_workers=REQUESTS_AT_ONCE) as executor:
        existing = api.request("GET", f"{NODES}?{urlencode({'labelSelector': f'{label}={pool}'})}")["items"]
        known = {node["metadata"]["name"] for node in existing}

        def create_or_update(node: dict[str, Any]) -> None:
            if node["metadata"]["name"] not in known:
                api.request("POST", NODES, node, JSON)
                return
            plain = {key: value for key, value in node.items() if key != "status"}
            api.request("PATCH", f"{NODES}/{node['metadata']['name']}?fieldManager={FIELD_MANAGER}&force=true", plain)

        list(executor.map(create_or_update, wanted))
        unwanted = known - {node["metadata"]["name"] for node in wanted}
        list(executor.map(lambda name: api.request("DELETE", f"{NODES}/{name}"), sorted(unwanted)))


def gke_objects(settings: ClusterSettings) -> list[tuple[str, dict[str, Any]]]:
    """Return the API path and the body of each object that GKE adds to a cluster."""
    webhook = "gke-tpu-environment"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    return [
        *((f"{definitions}/{each['metadata']['name']}", each) for each in (_definition(*kind) for kind in GKE_KINDS)),
        (
            f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{webhook}",
            _tpu_webhook(webhook, b64encode((settings.keys / "ca.crt").read_bytes()).decode()),
        ),
    ]


def _definition(group: str, kind: str, plural: str, scope: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    unapproved = {"api-approved.kubernetes.io": "unapproved, a rehearsal"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": unapproved},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


def _tpu_webhook(name: str, authority: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.rehearsal.trainyard.dev",
                "clientConfig": {"url": f"https://{CONTROL_PLANE_ADDRESS}:{WEBHOOK_PORT}/", "caBundle": authority},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "timeoutSeconds": 10,
            }
        ],
    }
