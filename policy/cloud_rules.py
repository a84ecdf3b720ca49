"""Rules for cloud resources: clusters, nodes, identities and buckets."""

from __future__ import annotations

from infra.hardware.gce import ACCELERATOR_PREFIXES
from policy.inputs import many, statements, value
from policy.rules import Broken, Check, Inputs, Level, Rule

GKE = ("gcp:container/cluster:Cluster",)
GKE_POOL = ("gcp:container/nodePool:NodePool",)
EKS = ("aws:eks/cluster:Cluster",)
TEMPLATE = ("aws:ec2/launchTemplate:LaunchTemplate",)
HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"
PRIMITIVE = ("roles/owner", "roles/editor", "roles/viewer")
EVERYBODY = ("allUsers", "allAuthenticatedUsers")
WORLD = ("0.0.0.0/0", "::/0")
ABAC = ("enableLegacyAbac", "has attribute-based access control")


def _must(path: str, wanted: object, message: str) -> Check:
    return lambda inputs: None if value(inputs, path) == wanted else (path, message)


def _has(path: str, message: str) -> Check:
    return lambda inputs: None if value(inputs, path) else (path, message)


def _node_account(inputs: Inputs) -> Broken | None:
    account = str(value(inputs, "nodeConfig.serviceAccount") or "default")
    default = account == "default" or account.endswith("-compute@developer.gserviceaccount.com")
    return ("nodeConfig.serviceAccount", "nodes run as the project's default service account") if default else None


def _gke_ends(inputs: Inputs) -> Broken | None:
    """Check accelerator pools only: attached GPUs, GPU machine types and TPUs."""
    machine = str(value(inputs, "nodeConfig.machineType"))
    if not value(inputs, "nodeConfig.guestAccelerators") and not machine.startswith(ACCELERATOR_PREFIXES):
        return None
    scaling = inputs.get("autoscaling") or {}
    least = scaling.get("totalMinNodeCount", scaling.get("minNodeCount"))
    if least == 0 or value(inputs, "nodeConfig.maxRunDuration"):
        return None
    return "autoscaling", "idle accelerators cost money until they are deleted; set min_nodes: 0 or max_run_hours"


def _gke_networks(inputs: Inputs) -> Broken | None:
    path = "masterAuthorizedNetworksConfig.cidrBlocks"
    is_open = any(each.get("cidrBlock") in WORLD for each in value(inputs, path) or [])
    return (path, "the API server is open to the whole internet") if is_open else None


def _eks_networks(inputs: Inputs) -> Broken | None:
    if not value(inputs, "vpcConfig.endpointPublicAccess"):
        return None
    # Without ranges, EKS allows all addresses.
    ranges = value(inputs, path := "vpcConfig.publicAccessCidrs") or [WORLD[0]]
    return (path, "the API server is open to the whole internet") if set(ranges) & set(WORLD) else None


def _primitive(inputs: Inputs) -> Broken | None:
    role = inputs.get("role")
    return ("role", f"grants the primitive role {role}") if role in PRIMITIVE else None


def _public_member(inputs: Inputs) -> Broken | None:
    for key in ("member", "members"):
        if set(map(str, many(inputs.get(key)))) & set(EVERYBODY):
            return key, "grants a role to everyone"
    return None


def _wildcards(inputs: Inputs) -> Broken | None:
    for statement in statements(inputs.get("policy")):
        if statement.get("Effect") != "Allow":
            continue
        if wild := [each for each in many(statement.get("Action")) if str(each).endswith("*")]:
            return "policy", f"allows {', '.join(wild)}"
        if "*" in many(statement.get("Resource")):
            return "policy", "allows actions on every resource"
    return None


def _gcs(inputs: Inputs) -> Broken | None:
    if inputs.get("uniformBucketLevelAccess") is not True:
        return "uniformBucketLevelAccess", "allows access lists of single objects"
    prevention = "publicAccessPrevention"
    return None if inputs.get(prevention) == "enforced" else (prevention, "can be made public")


def _s3(inputs: Inputs) -> Broken | None:
    keys = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    missing = [key for key in keys if inputs.get(key) is not True]
    return (missing[0], f"can be made public: {', '.join(missing)} off") if missing else None


def _eks_secrets(inputs: Inputs) -> Broken | None:
    covered = value(inputs, path := "encryptionConfig.resources") or []
    return None if "secrets" in covered else (path, "secrets are not encrypted with a key of the account")


def _disks(inputs: Inputs) -> Broken | None:
    disks = [str(value(each, "ebs.encrypted")).lower() for each in inputs.get("blockDeviceMappings") or []]
    return None if disks and set(disks) == {"true"} else ("blockDeviceMappings", "disks are not encrypted")


def _labelled(inputs: Inputs) -> Broken | None:
    labels = inputs.get("resourceLabels") or inputs.get("labels") or inputs.get("tags")
    return None if labels else ("", "has no labels, so its cost cannot be attributed")


def _rule(name: str, level: Level, types: tuple[str, ...], check: Check, why: str, link: str) -> Rule:
    return Rule(name=name, level=level, types=types, check=check, why=why, link=link)


CLOUD_RULES = (
    _rule(
        "private-nodes",
        "mandatory",
        GKE,
        _must("privateClusterConfig.enablePrivateNodes", True, "nodes have public addresses"),
        "A node without a public address cannot be reached from the internet.",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/private-cluster-concept",
    ),
    _rule(
        "workload-identity",
        "mandatory",
        GKE,
        _has("workloadIdentityConfig.workloadPool", "pods share the identity of their node"),
        "Each job then has its own permissions and no key that can leak.",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity",
    ),
    _rule(
        "shielded-nodes",
        "mandatory",
        GKE,
        _must("enableShieldedNodes", True, "nodes are not shielded"),
        "A shielded node proves its identity and integrity to the control plane.",
        "https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
    ),
    _rule(
        "no-legacy-authorization",
        "mandatory",
        GKE,
        lambda inputs: ABAC if inputs.get("enableLegacyAbac") else None,
        "Attribute-based access control gives every service account administrator permissions.",
        HARDENING,
    ),
    _rule(
        "api-server-not-public",
        "mandatory",
        GKE,
        _gke_networks,
        "With a public API server, one stolen credential gives access to the whole cluster.",
        HARDENING,
    ),
    _rule(
        "eks-api-server-not-public",
        "mandatory",
        EKS,
        _eks_networks,
        "With a public API server, one stolen credential gives access to the whole cluster.",
        "https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html",
    ),
    _rule(
        "node-service-account",
        "mandatory",
        GKE_POOL,
        _node_account,
        "In many organizations the default service account can edit the whole project.",
        HARDENING,
    ),
    _rule(
        "no-primitive-roles",
        "mandatory",
        ("IAMMember", "IAMBinding"),
        _primitive,
        "Owner, editor and viewer apply to every service of a project.",
        "https://cloud.google.com/iam/docs/roles-overview#basic",
    ),
    _rule(
        "no-public-grants",
        "mandatory",
        ("IAMMember", "IAMBinding"),
        _public_member,
        "Public data is copied before anyone notices.",
        "https://cloud.google.com/storage/docs/public-access-prevention",
    ),
    _rule(
        "no-wildcards",
        "mandatory",
        ("aws:iam/policy:Policy", "aws:iam/rolePolicy:RolePolicy"),
        _wildcards,
        "A wildcard also grants unintended actions and those that AWS adds later.",
        "https://docs.aws.amazon.com/IAM/latest/UserGuide/best-practices.html#grant-least-privilege",
    ),
    _rule(
        "private-buckets",
        "mandatory",
        ("gcp:storage/bucket:Bucket",),
        _gcs,
        "Checkpoints are valuable, and a single wrong grant can expose them.",
        "https://cloud.google.com/storage/docs/uniform-bucket-level-access",
    ),
    _rule(
        "private-s3-buckets",
        "mandatory",
        ("BucketPublicAccessBlock",),
        _s3,
        "Checkpoints are valuable, and a single wrong grant can expose them.",
        "https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html",
    ),
    _rule(
        "encrypted-secrets",
        "mandatory",
        EKS,
        _eks_secrets,
        "Without the key, a copy of etcd does not reveal the secrets.",
        "https://docs.aws.amazon.com/eks/latest/userguide/envelope-encryption.html",
    ),
    _rule(
        "metadata-needs-token",
        "mandatory",
        TEMPLATE,
        _must("metadataOptions.httpTokens", "required", "the metadata service answers without a token (IMDSv1)"),
        "IMDSv1 exposes the node's credentials to anyone who can make it send one request.",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html",
    ),
    _rule(
        "encrypted-disks",
        "mandatory",
        TEMPLATE,
        _disks,
        "Data and images on a disk can outlive the machine.",
        "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption.html",
    ),
    _rule(
        "accelerators-end",
        "advisory",
        GKE_POOL,
        _gke_ends,
        "Idle accelerators are the largest unintended cost.",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler",
    ),
    _rule(
        "deletion-protection",
        "advisory",
        (*GKE, *EKS),
        _must("deletionProtection", True, "one command deletes the cluster and everything in it"),
        "Outside of development, the deletion of a cluster should take two deliberate steps.",
        "https://docs.aws.amazon.com/eks/latest/userguide/deletion-protection.html",
    ),
    _rule(
        "labels-for-cost",
        "advisory",
        (*GKE, "gcp:storage/bucket:Bucket", "aws:eks/nodeGroup:NodeGroup"),
        _labelled,
        "Labels show the cost of each stack in the bill.",
        "https://cloud.google.com/resource-manager/docs/best-practices-labels",
    ),
)
