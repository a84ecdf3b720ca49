"""What GKE has in every cluster beside Kubernetes' own: two kinds of its own, and the webhook of TPU pods. Pure."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from infra.local.settings import CONTROL_PLANE_ADDRESS, ClusterSettings
from rehearsal.cluster.inside import WEBHOOK_PORT


def objects(settings: ClusterSettings) -> list[tuple[str, dict[str, Any]]]:
    """Address and body of each object."""
    webhook = "gke-tpu-environment"
    # https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
    classes = _definition("cloud.google.com", "ComputeClass", "computeclasses", "Cluster")
    # https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    requests = _definition("autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests", "Namespaced")
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    return [
        *((f"{definitions}/{each['metadata']['name']}", each) for each in (classes, requests)),
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
