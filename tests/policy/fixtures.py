"""Inputs of resources that follow or break each rule of the policy."""

from __future__ import annotations

import json
from typing import Any

SAFE_CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
CONTAINER = {
    "name": "worker",
    "image": f"example.com/trainer@sha256:{'0' * 64}",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    "securityContext": SAFE_CONTEXT,
}


def job(**changes: Any) -> dict[str, Any]:
    """Return the inputs of a Job, with changes of its only container."""
    return {"spec": {"template": {"spec": {"containers": [{**CONTAINER, **changes}]}}}}


def pod(**changes: Any) -> dict[str, Any]:
    """Return the inputs of a Job, with changes of its pod."""
    return {"spec": {"template": {"spec": {"containers": [CONTAINER], **changes}}}}


def policy(action: str, resource: str) -> dict[str, Any]:
    """Return the inputs of an IAM policy with one statement."""
    statement = {"Effect": "Allow", "Action": [action], "Resource": resource}
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}


def inputs_at(path: str, good: Any, bad: Any = None) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return inputs with `good` at a path, inputs with `bad` there (or without a value, for None), and the path."""
    first, _, rest = path.partition(".")
    if rest:
        good, bad, _ = inputs_at(rest, good, bad)
    return {first: good}, {first: bad} if bad not in (None, {}) else {}, path


GPUS = {"guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}], "machineType": "n1-standard-4"}
ALL_BLOCKED = dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)
BUCKET = {"uniformBucketLevelAccess": True, "publicAccessPrevention": "enforced"}

GKE = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"
MEMBER = "gcp:projects/iAMMember:IAMMember"
EKS = "aws:eks/cluster:Cluster"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
JOB = "kubernetes:batch/v1:Job"
FIRST_CONTAINER = "spec.template.spec.containers[0]"

FIXTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "private-nodes": (GKE, *inputs_at("privateClusterConfig.enablePrivateNodes", True)),
    "workload-identity": (GKE, *inputs_at("workloadIdentityConfig.workloadPool", "p.svc.id.goog")),
    "shielded-nodes": (GKE, *inputs_at("enableShieldedNodes", True, False)),
    "no-legacy-authorization": (GKE, *inputs_at("enableLegacyAbac", False, True)),
    "api-server-not-public": (
        GKE,
        *inputs_at(
            "masterAuthorizedNetworksConfig.cidrBlocks", [{"cidrBlock": "203.0.113.0/24"}], [{"cidrBlock": "0.0.0.0/0"}]
        ),
    ),
    "eks-api-server-not-public": (
        EKS,
        {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {"endpointPublicAccess": True}},
        "vpcConfig.publicAccessCidrs",
    ),
    "node-service-account": (POOL, *inputs_at("nodeConfig.serviceAccount", "nodes@p.iam.gserviceaccount.com")),
    "no-primitive-roles": (MEMBER, *inputs_at("role", "roles/storage.objectUser", "roles/editor")),
    "no-public-grants": (MEMBER, *inputs_at("member", "serviceAccount:a@b", "allUsers")),
    "no-wildcards": (
        "aws:iam/rolePolicy:RolePolicy",
        policy("s3:GetObject", "arn:aws:s3:::bucket/jobs/*"),
        policy("s3:*", "arn:aws:s3:::bucket"),
        "policy",
    ),
    "private-buckets": (
        "gcp:storage/bucket:Bucket",
        BUCKET,
        {**BUCKET, "publicAccessPrevention": "inherited"},
        "publicAccessPrevention",
    ),
    "private-s3-buckets": (
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        ALL_BLOCKED,
        {**ALL_BLOCKED, "blockPublicPolicy": False},
        "blockPublicPolicy",
    ),
    "encrypted-secrets": (EKS, *inputs_at("encryptionConfig.resources", ["secrets"])),
    "metadata-needs-token": (TEMPLATE, *inputs_at("metadataOptions.httpTokens", "required", "optional")),
    "encrypted-disks": (
        TEMPLATE,
        *inputs_at("blockDeviceMappings", *([{"ebs": {"encrypted": each}}] for each in ("true", "false"))),
    ),
    "accelerators-end": (
        POOL,
        {"nodeConfig": GPUS, "autoscaling": {"totalMinNodeCount": 0}},
        {"nodeConfig": GPUS},
        "autoscaling",
    ),
    "deletion-protection": (GKE, *inputs_at("deletionProtection", True, False)),
    "labels-for-cost": (GKE, {"resourceLabels": {"stack": "dev"}}, {}, ""),
    "images-by-digest": (JOB, job(), job(image="example.com/trainer:latest"), f"{FIRST_CONTAINER}.image"),
    "limits-set": (JOB, job(), job(resources={"limits": {"cpu": "1"}}), f"{FIRST_CONTAINER}.resources.limits"),
    "services-bounded": (
        "kubernetes:apps/v1:Deployment",
        job(resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}),
        job(resources={"requests": {"cpu": "100m"}}),
        f"{FIRST_CONTAINER}.resources",
    ),
    "non-root": (
        JOB,
        job(),
        job(securityContext={**SAFE_CONTEXT, "runAsNonRoot": False}),
        f"{FIRST_CONTAINER}.securityContext.runAsNonRoot",
    ),
    "no-privileges": (
        JOB,
        job(),
        job(securityContext={**SAFE_CONTEXT, "allowPrivilegeEscalation": True}),
        f"{FIRST_CONTAINER}.securityContext",
    ),
    "no-host-access": (
        JOB,
        pod(),
        pod(volumes=[{"name": "etc", "hostPath": {"path": "/etc"}}]),
        "spec.template.spec.volumes",
    ),
    "restricted-namespace": (
        "kubernetes:core/v1:Namespace",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
        {"metadata": {"labels": {}}},
        "metadata.labels",
    ),
}
"""Rule -> resource type, inputs that follow the rule, inputs that break the rule, path of the problem."""
