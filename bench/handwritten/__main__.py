"""Default stack with `restarts: 0`, written by hand for a comparison: one file, the same objects, no validation.

Only the cluster comes from Trainyard's code, because both programs must run on the same cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from infra.local.provider import LocalCluster
from infra.local.settings import ClusterSettings

config = pulumi.Config()
common = {"app.kubernetes.io/part-of": "trainyard", "app.kubernetes.io/managed-by": "pulumi"}
selector = {"trainyard.dev/job": "digits"}
labels = {
    "app.kubernetes.io/name": "trainer",
    "app.kubernetes.io/instance": "digits",
    **common,
    **selector,
    "trainyard.dev/recipe": "digits",
}
no_wait = {"pulumi.com/skipAwait": "true"}
created_is_ready = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}

cluster = LocalCluster(
    "local",
    settings=ClusterSettings(
        owner=config.require("owner"),
        stack=config.require("stack"),
        name=config.require("cluster"),
        nodes=2,
        port=config.require_int("port"),
    ),
    images=["trainyard.local/pause:1", config.require("clusterImage")],
)
provider = kubernetes.Provider(
    "kubernetes",
    kubeconfig=cluster.kubeconfig,
    cluster_identifier=cluster.uid,
    opts=pulumi.ResourceOptions(deleted_with=cluster.processes),
)
opts = pulumi.ResourceOptions(provider=provider, deleted_with=cluster.processes)

namespace = kubernetes.core.v1.Namespace(
    "namespace",
    metadata={
        "name": config.require("namespace"),
        "labels": {
            **common,
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
        },
    },
    opts=opts,
)
account = kubernetes.core.v1.ServiceAccount(
    "account",
    metadata={"name": "trainer", "namespace": namespace.metadata.name, "labels": common},
    automount_service_account_token=False,
    opts=opts,
)
volume_name = f"{config.require('namespace')}-bucket"
volume_spec: Any = {
    "capacity": {"storage": "20Gi"},
    "accessModes": ["ReadWriteMany"],
    "persistentVolumeReclaimPolicy": "Retain",
    "storageClassName": volume_name,
    "hostPath": {"path": "/run/trainyard/bucket", "type": "Directory"},
}
volume = kubernetes.core.v1.PersistentVolume(
    "volume", metadata={"name": volume_name, "labels": common}, spec=volume_spec, opts=opts
)
claim_spec: Any = {
    "accessModes": ["ReadWriteMany"],
    "storageClassName": volume.metadata.name,
    "volumeName": volume.metadata.name,
    "resources": {"requests": {"storage": "20Gi"}},
}
claim = kubernetes.core.v1.PersistentVolumeClaim(
    "bucket",
    metadata={"name": "bucket", "namespace": namespace.metadata.name, "labels": common, "annotations": no_wait},
    spec=claim_spec,
    opts=opts,
)
service_spec: Any = {
    "clusterIP": "None",
    "publishNotReadyAddresses": True,
    "selector": selector,
    "ports": [{"name": "rendezvous", "port": 29500}],
}
service = kubernetes.core.v1.Service(
    "hosts",
    metadata={
        "name": "digits",
        "namespace": namespace.metadata.name,
        "labels": labels,
        "annotations": no_wait,
    },
    spec=service_spec,
    opts=opts,
)


def from_field(name: str, path: str) -> dict[str, object]:
    """Return an environment variable that Kubernetes sets from a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def toleration(condition: str) -> dict[str, object]:
    """Return a toleration with which a pod stays half a minute on a node with this condition."""
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}


container = {
    "name": "trainer",
    "image": config.require("image"),
    "imagePullPolicy": "IfNotPresent",
    "command": ["python"],
    "args": ["-m", "trainer.launch", "-m", "trainer", "digits"],
    "env": [
        {"name": "TRAINYARD_BUCKET", "value": "file:///bucket"},
        {"name": "HOME", "value": "/tmp"},
        {"name": "TRAINYARD_JOB", "value": "digits"},
        from_field("TRAINYARD_NAMESPACE", "metadata.namespace"),
        from_field("TRAINYARD_NODE", "spec.nodeName"),
        {"name": "TRAINYARD_HOSTS", "value": "2"},
        {"name": "TRAINYARD_PROCESSES_PER_HOST", "value": "1"},
        {"name": "PET_SHUTDOWN_TIMEOUT", "value": "25"},
        {"name": "PET_RDZV_BACKEND", "value": "static"},
        {"name": "PET_RDZV_CONF", "value": "timeout=1500"},
        {"name": "PET_RDZV_ID", "value": "digits"},
        {"name": "PET_NNODES", "value": "2"},
        {"name": "PET_NPROC_PER_NODE", "value": "1"},
        {"name": "PET_RDZV_ENDPOINT", "value": "digits-0.digits.$(TRAINYARD_NAMESPACE).svc:29500"},
        from_field("PET_NODE_RANK", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        {"name": "OMP_NUM_THREADS", "value": "1"},
    ],
    "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    },
    "volumeMounts": [
        {"name": "dshm", "mountPath": "/dev/shm"},
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": "bucket", "mountPath": "/bucket"},
    ],
}
pod = {
    "subdomain": "digits",
    "restartPolicy": "Never",
    "serviceAccountName": account.metadata.name,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "terminationGracePeriodSeconds": 30,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "tolerations": [toleration("not-ready"), toleration("unreachable")],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {**selector, "app.kubernetes.io/component": "worker"}},
        }
    ],
    "containers": [container],
    "volumes": [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "bucket", "persistentVolumeClaim": {"claimName": claim.metadata.name}},
    ],
}
job_spec: Any = {
    "completionMode": "Indexed",
    "completions": 2,
    "parallelism": 2,
    "backoffLimit": 0,
    "backoffLimitPerIndex": 0,
    "maxFailedIndexes": 0,
    "podFailurePolicy": {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [65, 66, 69, 78]},
            },
        ]
    },
    "template": {
        "metadata": {
            "labels": {**labels, "app.kubernetes.io/component": "worker"},
            "annotations": {
                "kubectl.kubernetes.io/default-container": "trainer",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            },
        },
        "spec": pod,
    },
}
job = kubernetes.batch.v1.Job(
    "digits",
    metadata={
        "name": "digits",
        "namespace": namespace.metadata.name,
        "labels": labels,
        "annotations": created_is_ready,
    },
    spec=job_spec,
    opts=pulumi.ResourceOptions(provider=provider, deleted_with=cluster.processes, depends_on=[cluster.images]),
)

pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("kubeconfig_path", cluster.kubeconfig_path)
pulumi.export("namespace", namespace.metadata.name)
pulumi.export("jobs", [job.metadata.name])
