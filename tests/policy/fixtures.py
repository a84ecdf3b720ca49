"""For each rule the inputs of a resource that keeps it and of one that breaks it."""

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
    """A job whose one container is changed."""
    return {"spec": {"template": {"spec": {"containers": [{**CONTAINER, **changes}]}}}}


def pod(**changes: Any) -> dict[str, Any]:
    """A job whose pod is changed."""
    return {"spec": {"template": {"spec": {"containers": [CONTAINER], **changes}}}}


def policy(action: str, resource: str) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": [action], "Resource": resource}
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}


def blocks(cidr: str) -> dict[str, Any]:
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

FIXTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "private-nodes": (GKE, {"privateClusterConfig": {"enablePrivateNodes": True}}, {}),
    "workload-identity": (GKE, {"workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"}}, {}),
    "shielded-nodes": (GKE, {"enableShieldedNodes": True}, {"enableShieldedNodes": False}),
    "no-legacy-authorization": (GKE, {"enableLegacyAbac": False}, {"enableLegacyAbac": True}),
    "api-server-not-public": (GKE, blocks("203.0.113.0/24"), blocks("0.0.0.0/0")),
    "eks-api-server-not-public": (
        EKS,
        {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {"endpointPublicAccess": True}},
    ),
    "node-service-account": (POOL, {"nodeConfig": {"serviceAccount": "nodes@p.iam.gserviceaccount.com"}}, {}),
    "no-primitive-roles": (MEMBER, {"role": "roles/storage.objectUser"}, {"role": "roles/editor"}),
    "no-public-grants": (MEMBER, {"member": "serviceAccount:a@b"}, {"member": "allUsers"}),
    "no-wildcards": (
        "aws:iam/rolePolicy:RolePolicy",
        policy("s3:GetObject", "arn:aws:s3:::bucket/jobs/*"),
        policy("s3:*", "arn:aws:s3:::bucket"),
    ),
    "private-buckets": ("gcp:storage/bucket:Bucket", BUCKET, {**BUCKET, "publicAccessPrevention": "inherited"}),
    "private-s3-buckets": (
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        ALL_BLOCKED,
        {**ALL_BLOCKED, "blockPublicPolicy": False},
    ),
    "encrypted-secrets": (EKS, {"encryptionConfig": {"resources": ["secrets"]}}, {}),
    "metadata-needs-token": (
        TEMPLATE,
        {"metadataOptions": {"httpTokens": "required"}},
        {"metadataOptions": {"httpTokens": "optional"}},
    ),
    "encrypted-disks": (
        TEMPLATE,
        {"blockDeviceMappings": [{"ebs": {"encrypted": "true"}}]},
        {"blockDeviceMappings": [{"ebs": {"encrypted": "false"}}]},
    ),
    "accelerators-end": (POOL, {"nodeConfig": GPUS, "autoscaling": {"totalMinNodeCount": 0}}, {"nodeConfig": GPUS}),
    "deletion-protection": (GKE, {"deletionProtection": True}, {"deletionProtection": False}),
    "labels-for-cost": (GKE, {"resourceLabels": {"stack": "dev"}}, {}),
    "images-by-digest": (JOB, job(), job(image="example.com/trainer:latest")),
    "limits-set": (JOB, job(), job(resources={"limits": {"cpu": "1"}})),
    "services-bounded": (
        "kubernetes:apps/v1:Deployment",
        job(resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}),
        job(resources={"requests": {"cpu": "100m"}}),
    ),
    "non-root": (JOB, job(), job(securityContext={**SAFE, "runAsNonRoot": False})),
    "no-privileges": (JOB, job(), job(securityContext={**SAFE, "allowPrivilegeEscalation": True})),
    "no-host-access": (JOB, pod(), pod(volumes=[{"name": "etc", "hostPath": {"path": "/etc"}}])),
    "restricted-namespace": (
        "kubernetes:core/v1:Namespace",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
        {"metadata": {"labels": {}}},
    ),
}
"""Rule -> type, inputs that keep it, inputs that break it."""
