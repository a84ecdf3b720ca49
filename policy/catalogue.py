"""RULES: all rules of Trainyard, for cloud resources and for workloads in the cluster."""

from __future__ import annotations

from infra.hardware.gce import ACCELERATOR_PREFIXES
from policy.rules import Broken, Check, Inputs, Level, Rule, containers, many, pods, statements, value
from workloads.kinds import KINDS

GKE = ("gcp:container/cluster:Cluster",)
GKE_POOL = ("gcp:container/nodePool:NodePool",)
EKS = ("aws:eks/cluster:Cluster",)
TEMPLATE = ("aws:ec2/launchTemplate:LaunchTemplate",)
HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"
PRIMITIVE = ("roles/owner", "roles/editor", "roles/viewer")
ALL_USERS = ("allUsers", "allAuthenticatedUsers")
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
        if set(map(str, many(inputs.get(key)))) & set(ALL_USERS):
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


JOBS = tuple(each for kind in KINDS.values() for each in kind.pod_types)
"""Ends of the types whose resources hold a job's pods."""
WORKLOADS = (*JOBS, "Deployment", "StatefulSet", ":Pod")
RESTRICTED = "https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"


def _digests(inputs: Inputs) -> Broken | None:
    images = [(path, str(each.get("image"))) for path, each in containers(inputs)]
    loose = [(path, image) for path, image in images if "@sha256:" not in image]
    listed = ", ".join(sorted({image for _, image in loose}))
    return (f"{loose[0][0]}.image", f"image {listed} has no digest") if loose else None


def _limits(inputs: Inputs) -> Broken | None:
    for path, each in containers(inputs):
        limits = value(each, "resources.limits") or {}
        if missing := [kind for kind in ("cpu", "memory") if kind not in limits]:
            return f"{path}.resources.limits", f"container {each.get('name')} has no limit of {' and '.join(missing)}"
    return None


def _bounded(inputs: Inputs) -> Broken | None:
    for path, each in containers(inputs):
        if not value(each, "resources.limits.memory") or not value(each, "resources.requests.cpu"):
            message = f"container {each.get('name')} has no limit of memory or no request of cpu"
            return f"{path}.resources", message
    return None


def _non_root(inputs: Inputs) -> Broken | None:
    for path, pod in pods(inputs):
        for index, each in enumerate(pod["containers"]):
            if not (value(pod, "securityContext.runAsNonRoot") or value(each, "securityContext.runAsNonRoot")):
                where = f"{path}.containers[{index}].securityContext.runAsNonRoot"
                return where, f"container {each.get('name')} may run as root"
    return None


def _restricted(inputs: Inputs) -> Broken | None:
    for path, each in containers(inputs):
        context = each.get("securityContext") or {}
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            return f"{path}.securityContext", f"container {each.get('name')} may gain privileges"
        if "ALL" not in (value(context, "capabilities.drop") or []):
            return f"{path}.securityContext.capabilities.drop", f"container {each.get('name')} keeps capabilities"
    return None


def _host(inputs: Inputs) -> Broken | None:
    for path, pod in pods(inputs):
        if shared := [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]:
            return f"{path}.{shared[0]}", f"pod shares {', '.join(shared)} with its node"
        if any(volume.get("hostPath") for volume in pod.get("volumes") or []):
            return f"{path}.volumes", "pod mounts a folder of its node"
    return None


def _namespace(inputs: Inputs) -> Broken | None:
    enforced = (value(inputs, "metadata.labels") or {}).get("pod-security.kubernetes.io/enforce")
    message = "namespace does not enforce the restricted Pod Security Standard"
    return None if enforced == "restricted" else ("metadata.labels", message)


JOB_RULES = (
    Rule(
        name="images-by-digest",
        level="advisory",
        why="A tag can move, and hosts that start later would then run different code.",
        link="https://kubernetes.io/docs/concepts/containers/images/#image-names",
        types=WORKLOADS,
        check=_digests,
    ),
    Rule(
        name="limits-set",
        level="mandatory",
        why="A container without limits can starve the rank next to it, and the whole job waits for the slowest rank.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        types=JOBS,
        check=_limits,
    ),
    Rule(
        name="services-bounded",
        level="mandatory",
        why="A memory leak of a controller must not take down its node. The controller may use spare CPU.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        types=("Deployment", "StatefulSet"),
        check=_bounded,
    ),
    Rule(
        name="non-root",
        level="mandatory",
        why="Root in a container is root on the node after a container escape.",
        link=RESTRICTED,
        types=WORKLOADS,
        check=_non_root,
    ),
    Rule(
        name="no-privileges",
        level="mandatory",
        why="Training needs no Linux capabilities, and a container cannot misuse capabilities that it lacks.",
        link=RESTRICTED,
        types=WORKLOADS,
        check=_restricted,
    ),
    Rule(
        name="no-host-access",
        level="mandatory",
        why="A pod in its node's namespaces or folders can see other pods and the node's credentials.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline",
        types=JOBS,
        check=_host,
    ),
    Rule(
        name="restricted-namespace",
        level="mandatory",
        why="The API server then rejects pods that these rules would only report.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-admission/",
        types=("kubernetes:core/v1:Namespace",),
        check=_namespace,
    ),
)


RULES: tuple[Rule, ...] = (*CLOUD_RULES, *JOB_RULES)
"""All rules. Their names are unique."""
