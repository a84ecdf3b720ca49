"""Objects that GKE adds to every cluster: custom resource definitions, and the webhook for TPU pods."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from infra.local.settings import CONTROL_PLANE_ADDRESS, ClusterSettings
from simulation.cluster.init import WEBHOOK_PORT

KINDS = (
    # https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
    ("cloud.google.com", "ComputeClass", "computeclasses", "Cluster"),
    # https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    ("autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests", "Namespaced"),
    # https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods
    ("networking.gke.io", "Network", "networks", "Cluster"),
    ("networking.gke.io", "GKENetworkParamSet", "gkenetworkparamsets", "Cluster"),
)
"""Group, kind, plural and scope of each custom resource that GKE adds."""


def objects(settings: ClusterSettings) -> list[tuple[str, dict[str, Any]]]:
    """Return the API path and the body of each object."""
    webhook = "gke-tpu-environment"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    return [
        *((f"{definitions}/{each['metadata']['name']}", each) for each in (_definition(*kind) for kind in KINDS)),
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
