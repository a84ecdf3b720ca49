"""What GKE has in every cluster beside Kubernetes' own: the ComputeClass kind, and the webhook of TPU pods. Pure."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from infra.local.settings import CONTROL_PLANE_ADDRESS, ClusterSettings
from rehearsal.cluster.inside import WEBHOOK_PORT


def objects(settings: ClusterSettings) -> list[tuple[str, dict[str, Any]]]:
    """Address and body of each object."""
    name = "computeclasses.cloud.google.com"
    webhook = "gke-tpu-environment"
    return [
        (f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", _compute_class(name)),
        (
            f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{webhook}",
            _tpu_webhook(webhook, b64encode((settings.keys / "ca.crt").read_bytes()).decode()),
        ),
    ]


def _compute_class(name: str) -> dict[str, Any]:
    """https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass"""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, a rehearsal"}},
        "spec": {
            "group": "cloud.google.com",
            "scope": "Cluster",
            "names": {"kind": "ComputeClass", "plural": "computeclasses", "singular": "computeclass"},
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
