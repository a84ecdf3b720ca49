"""Inputs of resources for each rule of the policy: some that follow it and some that break it."""

from __future__ import annotations

import json
from typing import Any

SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
CONTAINER = {
    "name": "worker",
    "image": f"example.com/trainer@sha256:{'0' * 64}",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    "securityContext": SAFE,
}


def job(**changes: Any) -> dict[str, Any]:
    """Return a Job with changes in its only container."""
    return {"spec": {"template": {"spec": {"containers": [{**CONTAINER, **changes}]}}}}


def pod(**changes: Any) -> dict[str, Any]:
    """Return a Job with changes in its pod."""
    return {"spec": {"template": {"spec": {"containers": [CONTAINER], **changes}}}}


def policy(action: str, resource: str) -> dict[str, Any]:
    """Return the inputs of an IAM policy with one statement."""
    statement = {"Effect": "Allow", "Action": [action], "Resource": resource}
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}


def blocks(cidr: str) -> dict[str, Any]:
    """Return the inputs of a GKE cluster with one authorized network."""
    return {"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": cidr}]}}


GPUS = {"guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}], "machineType": "n1-standard-4"}
ALL_BLOCKED = dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)
BUCKET = {"uniformBucketLevelAccess": True, "publicAccessPrevention": "enforced"}

GKE = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"
MEMBER = "gcp:projects/iAMMember:IAMMember"
EKS = "aws:eks/cluster:Cluster"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
JOB = "kubernetes:batch/v1:Job"

FIXTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "private-nodes": (
        GKE,
        {"privateClusterConfig": {"enablePrivateNodes": True}},
        {},
        "privateClusterConfig.enablePrivateNodes",
    ),
    "workload-identity": (
        GKE,
        {"workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"}},
        {},
        "workloadIdentityConfig.workloadPool",
    ),
    "shielded-nodes": (GKE, {"enableShieldedNodes": True}, {"enableShieldedNodes": False}, "enableShieldedNodes"),
    "no-legacy-authorization": (GKE, {"enableLegacyAbac": False}, {"enableLegacyAbac": True}, "enableLegacyAbac"),
    "api-server-not-public": (
        GKE,
        blocks("203.0.113.0/24"),
        blocks("0.0.0.0/0"),
        "masterAuthorizedNetworksConfig.cidrBlocks",
    ),
    "eks-api-server-not-public": (
        EKS,
        {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {"endpointPublicAccess": True}},
        "vpcConfig.publicAccessCidrs",
    ),
    "node-service-account": (
        POOL,
        {"nodeConfig": {"serviceAccount": "nodes@p.iam.gserviceaccount.com"}},
        {},
        "nodeConfig.serviceAccount",
    ),
    "no-primitive-roles": (MEMBER, {"role": "roles/storage.objectUser"}, {"role": "roles/editor"}, "role"),
    "no-public-grants": (MEMBER, {"member": "serviceAccount:a@b"}, {"member": "allUsers"}, "member"),
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
    "encrypted-secrets": (EKS, {"encryptionConfig": {"resources": ["secrets"]}}, {}, "encryptionConfig.resources"),
    "metadata-needs-token": (
        TEMPLATE,
        {"metadataOptions": {"httpTokens": "required"}},
        {"metadataOptions": {"httpTokens": "optional"}},
        "metadataOptions.httpTokens",
    ),
    "encrypted-disks": (
        TEMPLATE,
        {"blockDeviceMappings": [{"ebs": {"encrypted": "true"}}]},
        {"blockDeviceMappings": [{"ebs": {"encrypted": "false"}}]},
        "blockDeviceMappings",
    ),
    "accelerators-end": (
        POOL,
        {"nodeConfig": GPUS, "autoscaling": {"totalMinNodeCount": 0}},
        {"nodeConfig": GPUS},
        "autoscaling",
    ),
    "deletion-protection": (GKE, {"deletionProtection": True}, {"deletionProtection": False}, "deletionProtection"),
    "labels-for-cost": (GKE, {"resourceLabels": {"stack": "dev"}}, {}, ""),
    "images-by-digest": (JOB, job(), job(image="example.com/trainer:latest"), "spec.template.spec.containers[0].image"),
    "limits-set": (
        JOB,
        job(),
        job(resources={"limits": {"cpu": "1"}}),
        "spec.template.spec.containers[0].resources.limits",
    ),
    "services-bounded": (
        "kubernetes:apps/v1:Deployment",
        job(resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}),
        job(resources={"requests": {"cpu": "100m"}}),
        "spec.template.spec.containers[0].resources",
    ),
    "non-root": (
        JOB,
        job(),
        job(securityContext={**SAFE, "runAsNonRoot": False}),
        "spec.template.spec.containers[0].securityContext.runAsNonRoot",
    ),
    "no-privileges": (
        JOB,
        job(),
        job(securityContext={**SAFE, "allowPrivilegeEscalation": True}),
        "spec.template.spec.containers[0].securityContext",
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
"""Rule -> type, inputs that follow it, inputs that break it, path of the problem."""
