"""Rules of IAM, KMS, logs, buckets and image repositories of AWS."""

from __future__ import annotations

import ipaddress
import json
import re

from simulation.cloud.aws import ACCOUNT
from simulation.cloud.kind import Found, rule
from simulation.cloud.state import Properties

_ROLE = re.compile(r"[\w+=,.@-]{1,64}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REPOSITORY = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*")
RETENTIONS = (
    0,
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
)
MANAGED = frozenset(
    [
        "AmazonEKSClusterPolicy",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryReadOnly",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonSSMManagedInstanceCore",
        "service-role/AmazonEBSCSIDriverPolicy",
        "service-role/AmazonEFSCSIDriverPolicy",
        "AmazonEKSVPCResourceController",
        "AmazonS3ReadOnlyAccess",
        "CloudWatchAgentServerPolicy",
        "AmazonEKSServicePolicy",
        "AmazonEKSComputePolicy",
        "AmazonEKSNetworkingPolicy",
        "AmazonEKSBlockStoragePolicy",
        "AmazonEKSLoadBalancingPolicy",
    ]
)
"""Policies of AWS that training stacks use: https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html"""


NODE_CANNOT_JOIN = (
    "AmazonEKSWorkerNodeMinimalPolicy is for EKS Auto Mode: it lacks ec2:DescribeInstances, so nodes of managed "
    "groups cannot join the cluster; write AmazonEKSWorkerNodePolicy"
)
"""Source: awslabs/amazon-eks-ami nodeadm/internal/api/status.go:28"""


@rule("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html")
def role_name(inputs: Properties) -> Found:
    """Require a valid name of 1 to 64 characters."""
    name = inputs.get("name")
    if isinstance(name, str) and not _ROLE.fullmatch(name):
        yield "name", f"{name!r} must be 1 to 64 letters, digits and _+=,.@-"


def _document(text: object) -> str:
    if not isinstance(text, str):
        return ""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        return "must be JSON"
    if not isinstance(content, dict) or content.get("Version") not in ("2012-10-17", "2008-10-17"):
        return "must have the Version 2012-10-17"
    statements = content.get("Statement")
    statements = statements if isinstance(statements, list) else [statements]
    if not all(isinstance(each, dict) and each.get("Effect") in ("Allow", "Deny") for each in statements):
        return "each Statement must have the Effect Allow or Deny"
    if not all("Action" in each or "NotAction" in each for each in statements):
        return "each Statement must have an Action"
    return ""


@rule("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements.html")
def trust_policy(inputs: Properties) -> Found:
    """Require a valid trust policy with a principal."""
    text = inputs.get("assumeRolePolicy")
    if reason := _document(text):
        yield "assumeRolePolicy", reason
    elif isinstance(text, str) and "Principal" not in text:
        yield "assumeRolePolicy", "must name a Principal"


@rule("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements.html")
def policy_document(inputs: Properties) -> Found:
    """Require a valid policy document."""
    if reason := _document(inputs.get("policy")):
        yield "policy", reason


@rule("https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html")
def managed_policy(inputs: Properties) -> Found:
    """Require a known managed policy of AWS, or a policy of the account."""
    arn = inputs.get("policyArn")
    if not isinstance(arn, str) or arn.startswith(f"arn:aws:iam::{ACCOUNT}:policy/"):
        return
    if arn.endswith("/AmazonEKSWorkerNodeMinimalPolicy"):
        yield "policyArn", NODE_CANNOT_JOIN
    elif arn.removeprefix("arn:aws:iam::aws:policy/") not in MANAGED:
        yield "policyArn", f"{arn!r} is not a managed policy of AWS that the rehearsal knows"


@rule("https://docs.aws.amazon.com/kms/latest/developerguide/deleting-keys.html")
def key_deletion(inputs: Properties) -> Found:
    """Require a waiting period of 7 to 30 days before a key's deletion."""
    days = inputs.get("deletionWindowInDays")
    if isinstance(days, int) and not 7 <= days <= 30:
        yield "deletionWindowInDays", f"{days} must be 7 to 30"


@rule("https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html")
def log_retention(inputs: Properties) -> Found:
    """Require a retention that CloudWatch supports."""
    days = inputs.get("retentionInDays")
    if isinstance(days, int) and days not in RETENTIONS:
        yield "retentionInDays", f"{days} must be one of {', '.join(map(str, RETENTIONS))}"


@rule("https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html")
def s3_bucket_name(inputs: Properties) -> Found:
    """Require a valid bucket name that is not an IP address."""
    name = inputs.get("bucket")
    if not isinstance(name, str):
        return
    if not _BUCKET.fullmatch(name) or ".." in name:
        yield "bucket", f"{name!r} must be 3 to 63 lower-case letters, digits, '.' and '-'"
    elif name.startswith(("xn--", "sthree-", "amzn-s3-demo-")) or name.endswith(("-s3alias", "--ol-s3", ".mrap")):
        yield "bucket", f"{name!r} has a prefix or suffix that AWS reserves"
    elif re.fullmatch(r"\d+(\.\d+){3}", name) and ipaddress.ip_address(name):
        yield "bucket", f"{name!r} must not be an IP address"


@rule("https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreateRepository.html")
def repository_name(inputs: Properties) -> Found:
    """Require a valid name of 2 to 256 characters."""
    name = inputs.get("name")
    if isinstance(name, str) and not (_REPOSITORY.fullmatch(name) and 2 <= len(name) <= 256):
        yield "name", f"{name!r} must be 2 to 256 lower-case letters, digits, '.', '_', '-' and '/'"
