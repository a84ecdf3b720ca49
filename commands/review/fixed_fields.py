"""Fields for which pulumi-kubernetes replaces a Kubernetes object, for previews without that plugin.

From https://github.com/pulumi/pulumi-kubernetes/blob/v4.25.0/provider/pkg/provider/diff.go; a test asks the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IDENTITY = (".metadata.name", ".metadata.namespace")

_SELECTOR = ".spec.selector"
_CLAIM = [_SELECTOR, ".spec.accessModes", ".spec.storageClassName", ".spec.volumeName"]
_JOB = [_SELECTOR, ".spec.completions", ".spec.parallelism", ".spec.template"]
_VOLUME = ("csi", "fc", "hostPath", "iscsi", "local", "nfs")

FIXED_FIELDS: Mapping[tuple[str, str], list[str]] = {
    ("apps/v1", "DaemonSet"): [_SELECTOR],
    ("apps/v1", "Deployment"): [_SELECTOR],
    ("batch/v1", "Job"): _JOB,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): [".roleRef"],
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): [".roleRef"],
    ("storage.k8s.io/v1", "StorageClass"): [".parameters", ".provisioner"],
    ("v1", "ConfigMap"): [".binaryData", ".data"],
    ("v1", "PersistentVolume"): [f".spec.{name}" for name in _VOLUME],
    ("v1", "PersistentVolumeClaim"): _CLAIM,
    ("v1", "ResourceQuota"): [".spec.scopes"],
    ("v1", "Secret"): [".type", ".stringData", ".data"],
    ("v1", "Service"): [".spec.clusterIP"],
}
"""API version and kind -> paths in addition to the name.

Data is included: pods that have read it would not see a change. Volume types that Kubernetes has removed are left out.
"""


def fixed_fields(manifest: Mapping[str, Any]) -> list[str]:
    """Return the paths whose change replaces this object."""
    return [*IDENTITY, *FIXED_FIELDS.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))), [])]
