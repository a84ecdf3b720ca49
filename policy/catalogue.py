"""Catalogue of the policy's rules, and PolicyConfig, the settings of the rules in a stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.builtin_images import LOCAL_PREFIX
from infra.hardware.gce import ACCELERATOR_PREFIXES
from policy.rules import Check, Inputs, InvalidInput, Rule, Settings, as_list, containers, pods, statements, value_at
from settings.problem import Invalid
from settings.types import Section
from workloads.kinds import KINDS

GKE = ("gcp:container/cluster:Cluster",)
GKE_POOL = ("gcp:container/nodePool:NodePool",)
EKS = ("aws:eks/cluster:Cluster",)
LAUNCH_TEMPLATE = ("aws:ec2/launchTemplate:LaunchTemplate",)
HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"
PRIMITIVE_ROLES = ("roles/owner", "roles/editor", "roles/viewer")
ALL_USERS = ("allUsers", "allAuthenticatedUsers")


def _requires(path: str, expected: object, message: str) -> Check:
    return lambda inputs: None if value_at(inputs, path) == expected else (path, message)


def _requires_any(path: str, message: str) -> Check:
    return lambda inputs: None if value_at(inputs, path) else (path, message)


def _legacy_authorization(inputs: Inputs) -> InvalidInput | None:
    key = "enableLegacyAbac"
    return (key, "has attribute-based access control") if inputs.get(key) else None


def _node_account(inputs: Inputs) -> InvalidInput | None:
    account = str(value_at(inputs, "nodeConfig.serviceAccount") or "default")
    is_default = account == "default" or account.endswith("-compute@developer.gserviceaccount.com")
    return ("nodeConfig.serviceAccount", "nodes run as the project's default service account") if is_default else None


def _accelerators_end(inputs: Inputs) -> InvalidInput | None:
    """Reject a pool with accelerators that keeps idle nodes and does not limit their run time."""
    machine = str(value_at(inputs, "nodeConfig.machineType"))
    if not value_at(inputs, "nodeConfig.guestAccelerators") and not machine.startswith(ACCELERATOR_PREFIXES):
        return None
    scaling = inputs.get("autoscaling") or {}
    min_nodes = scaling.get("totalMinNodeCount", scaling.get("minNodeCount"))
    if min_nodes == 0 or value_at(inputs, "nodeConfig.maxRunDuration"):
        return None
    return "autoscaling", "idle accelerators cost money until they are deleted; set min_nodes: 0 or max_run_hours"


def _cover_internet(ranges: Iterable[object]) -> bool:
    """Return True if the ranges together contain all IPv4 or all IPv6 addresses. Ignore values that are not ranges."""
    networks = [ip_network(text, strict=False) for text in map(str, ranges) if "/" in text]
    ipv4 = collapse_addresses(each for each in networks if isinstance(each, IPv4Network))
    ipv6 = collapse_addresses(each for each in networks if isinstance(each, IPv6Network))
    return any(each.prefixlen == 0 for each in ipv4) or any(each.prefixlen == 0 for each in ipv6)


def _gke_networks(inputs: Inputs) -> InvalidInput | None:
    key = "masterAuthorizedNetworksConfig"
    path = f"{key}.cidrBlocks"
    # Without this configuration, GKE allows all addresses. With an empty one, GKE allows no address of the internet:
    # https://registry.terraform.io/providers/hashicorp/google/latest/docs/resources/container_cluster
    is_open = inputs.get(key) is None and not value_at(inputs, "privateClusterConfig.enablePrivateEndpoint")
    blocks = [block.get("cidrBlock") for block in value_at(inputs, path) or [] if isinstance(block, Mapping)]
    return (path, "the API server is open to the whole internet") if is_open or _cover_internet(blocks) else None


def _eks_networks(inputs: Inputs) -> InvalidInput | None:
    if not value_at(inputs, "vpcConfig.endpointPublicAccess"):
        return None
    # Without ranges, EKS allows all addresses.
    ranges = value_at(inputs, path := "vpcConfig.publicAccessCidrs")
    return (path, "the API server is open to the whole internet") if not ranges or _cover_internet(ranges) else None


def _primitive_role(inputs: Inputs) -> InvalidInput | None:
    role = inputs.get("role")
    return ("role", f"grants the primitive role {role}") if role in PRIMITIVE_ROLES else None


def _public_member(inputs: Inputs) -> InvalidInput | None:
    for key in ("member", "members"):
        if set(map(str, as_list(inputs.get(key)))) & set(ALL_USERS):
            return key, "grants a role to everyone"
    return None


def _wildcards(inputs: Inputs) -> InvalidInput | None:
    for statement in statements(inputs.get("policy")):
        if statement.get("Effect") != "Allow":
            continue
        if wildcards := [action for action in as_list(statement.get("Action")) if str(action).endswith("*")]:
            return "policy", f"allows {', '.join(wildcards)}"
        if "*" in as_list(statement.get("Resource")):
            return "policy", "allows actions on every resource"
    return None


def _public_gcs_bucket(inputs: Inputs) -> InvalidInput | None:
    if inputs.get("uniformBucketLevelAccess") is not True:
        return "uniformBucketLevelAccess", "allows access control lists (ACLs) of single objects"
    prevention = "publicAccessPrevention"
    return None if inputs.get(prevention) == "enforced" else (prevention, "can be made public")


def _public_s3_bucket(inputs: Inputs) -> InvalidInput | None:
    keys = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    missing = [key for key in keys if inputs.get(key) is not True]
    return (missing[0], f"can be made public: {', '.join(missing)} off") if missing else None


def _eks_secrets(inputs: Inputs) -> InvalidInput | None:
    encrypted = value_at(inputs, path := "encryptionConfig.resources") or []
    return None if "secrets" in encrypted else (path, "secrets are not encrypted with a key of the account")


def _unencrypted_disks(inputs: Inputs) -> InvalidInput | None:
    disks = [str(value_at(disk, "ebs.encrypted")).lower() for disk in inputs.get("blockDeviceMappings") or []]
    return None if disks and set(disks) == {"true"} else ("blockDeviceMappings", "disks are not encrypted")


def _missing_labels(inputs: Inputs) -> InvalidInput | None:
    labels = inputs.get("resourceLabels") or inputs.get("labels") or inputs.get("tags")
    return None if labels else ("", "has no labels, so its cost cannot be attributed")


CLOUD_RULES = (
    Rule(
        "private-nodes",
        GKE,
        _requires("privateClusterConfig.enablePrivateNodes", True, "nodes have public addresses"),
        "A node without a public address cannot be reached from the internet.",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/private-cluster-concept",
    ),
    Rule(
        "workload-identity",
        GKE,
        _requires_any("workloadIdentityConfig.workloadPool", "pods share the identity of their node"),
        "With Workload Identity, pods have their own permissions, not their node's, and no key that can leak.",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity",
    ),
    Rule(
        "shielded-nodes",
        GKE,
        _requires("enableShieldedNodes", True, "nodes are not shielded"),
        "A shielded node proves its identity and integrity to the control plane.",
        "https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
    ),
    Rule(
        "no-legacy-authorization",
        GKE,
        _legacy_authorization,
        "Attribute-based access control gives every service account administrator permissions.",
        HARDENING,
    ),
    Rule(
        "api-server-not-public",
        GKE,
        _gke_networks,
        "With a public API server, one stolen credential gives access to the whole cluster.",
        HARDENING,
    ),
    Rule(
        "eks-api-server-not-public",
        EKS,
        _eks_networks,
        "With a public API server, one stolen credential gives access to the whole cluster.",
        "https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html",
    ),
    Rule(
        "node-service-account",
        GKE_POOL,
        _node_account,
        "In many organizations the default service account can edit the whole project.",
        HARDENING,
    ),
    Rule(
        "no-primitive-roles",
        ("IAMMember", "IAMBinding"),
        _primitive_role,
        "Owner, editor and viewer apply to every service of a project.",
        "https://cloud.google.com/iam/docs/roles-overview#basic",
    ),
    Rule(
        "no-public-grants",
        ("IAMMember", "IAMBinding"),
        _public_member,
        "Anyone can copy public data before its owner notices.",
        "https://cloud.google.com/storage/docs/public-access-prevention",
    ),
    Rule(
        "no-wildcards",
        ("aws:iam/policy:Policy", "aws:iam/rolePolicy:RolePolicy"),
        _wildcards,
        "A wildcard also grants unintended actions and actions that AWS adds later.",
        "https://docs.aws.amazon.com/IAM/latest/UserGuide/best-practices.html#grant-least-privilege",
    ),
    Rule(
        "private-buckets",
        ("gcp:storage/bucket:Bucket",),
        _public_gcs_bucket,
        "Checkpoints are valuable, and a single wrong grant can expose them.",
        "https://cloud.google.com/storage/docs/uniform-bucket-level-access",
    ),
    Rule(
        "private-s3-buckets",
        ("BucketPublicAccessBlock",),
        _public_s3_bucket,
        "Checkpoints are valuable, and a single wrong grant can expose them.",
        "https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html",
    ),
    Rule(
        "encrypted-secrets",
        EKS,
        _eks_secrets,
        "A copy of etcd does not reveal secrets without the key.",
        "https://docs.aws.amazon.com/eks/latest/userguide/envelope-encryption.html",
    ),
    Rule(
        "metadata-needs-token",
        LAUNCH_TEMPLATE,
        _requires("metadataOptions.httpTokens", "required", "the metadata service answers without a token (IMDSv1)"),
        "IMDSv1 exposes the node's credentials to anyone who can make the node send one request.",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html",
    ),
    Rule(
        "encrypted-disks",
        LAUNCH_TEMPLATE,
        _unencrypted_disks,
        "Data and images on a disk can outlive the machine.",
        "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption.html",
    ),
    Rule(
        "accelerators-end",
        GKE_POOL,
        _accelerators_end,
        "Idle accelerators can be the largest unintended cost.",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler",
        level="advisory",
    ),
    Rule(
        "deletion-protection",
        (*GKE, *EKS),
        _requires("deletionProtection", True, "one command deletes the cluster and everything in it"),
        "Outside of development, the deletion of a cluster should take two deliberate steps.",
        "https://docs.aws.amazon.com/eks/latest/userguide/deletion-protection.html",
        level="advisory",
    ),
    Rule(
        "labels-for-cost",
        (*GKE, "gcp:storage/bucket:Bucket", "aws:eks/nodeGroup:NodeGroup"),
        _missing_labels,
        "Labels show each stack's cost in the cloud's bill.",
        "https://cloud.google.com/resource-manager/docs/best-practices-labels",
        level="advisory",
    ),
)


JOB_TYPES = tuple(pod_type for kind in KINDS.values() for pod_type in kind.pod_types)
"""Suffixes of the resource types that contain a job's pods."""
WORKLOAD_TYPES = (*JOB_TYPES, "Deployment", "StatefulSet", ":Pod")
RESTRICTED = "https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"


def _digests(inputs: Inputs) -> InvalidInput | None:
    images = [(path, str(container.get("image"))) for path, container in containers(inputs)]
    # An image that set-up builds needs no digest: its tag is a hash of its contents.
    registry_images = [(path, image) for path, image in images if not image.startswith(LOCAL_PREFIX)]
    without_digest = [(path, image) for path, image in registry_images if "@sha256:" not in image]
    names = ", ".join(sorted({image for _, image in without_digest}))
    return (f"{without_digest[0][0]}.image", f"image {names} has no digest") if without_digest else None


def _limits(inputs: Inputs) -> InvalidInput | None:
    for path, container in containers(inputs):
        limits = value_at(container, "resources.limits") or {}
        if missing := [kind for kind in ("cpu", "memory") if kind not in limits]:
            message = f"container {container.get('name')} has no {' and '.join(missing)} limit"
            return f"{path}.resources.limits", message
    return None


def _unbounded_service(inputs: Inputs) -> InvalidInput | None:
    for path, container in containers(inputs):
        if not value_at(container, "resources.limits.memory") or not value_at(container, "resources.requests.cpu"):
            message = f"container {container.get('name')} has no memory limit or no CPU request"
            return f"{path}.resources", message
    return None


def _non_root(inputs: Inputs) -> InvalidInput | None:
    key = "securityContext.runAsNonRoot"
    for pod_path, pod in pods(inputs):
        for path, container in containers(pod):
            # A container's value overrides the pod's.
            own = value_at(container, key)
            if not (value_at(pod, key) if own is None else own):
                return f"{pod_path}{path}.{key}", f"container {container.get('name')} may run as root"
    return None


def _restricted(inputs: Inputs) -> InvalidInput | None:
    for path, container in containers(inputs):
        context = container.get("securityContext") or {}
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            return f"{path}.securityContext", f"container {container.get('name')} may gain privileges"
        if "ALL" not in (value_at(context, "capabilities.drop") or []):
            return f"{path}.securityContext.capabilities.drop", f"container {container.get('name')} keeps capabilities"
    return None


def _host(inputs: Inputs) -> InvalidInput | None:
    for path, pod in pods(inputs):
        if shared := [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]:
            return f"{path}.{shared[0]}", f"pod shares {', '.join(shared)} with its node"
        if any(volume.get("hostPath") for volume in pod.get("volumes") or []):
            return f"{path}.volumes", "pod mounts a folder of its node"
    return None


def _namespace(inputs: Inputs) -> InvalidInput | None:
    enforced_standard = (value_at(inputs, "metadata.labels") or {}).get("pod-security.kubernetes.io/enforce")
    message = "namespace does not enforce the restricted Pod Security Standard"
    return None if enforced_standard == "restricted" else ("metadata.labels", message)


JOB_RULES = (
    Rule(
        name="images-by-digest",
        level="advisory",
        why="A tag can move, and hosts that start later would then run different code.",
        link="https://kubernetes.io/docs/concepts/containers/images/#image-names",
        types=WORKLOAD_TYPES,
        check=_digests,
    ),
    Rule(
        name="limits-set",
        why="A container without limits can starve the rank next to it, and the whole job waits for the slowest rank.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        types=JOB_TYPES,
        check=_limits,
    ),
    Rule(
        name="services-bounded",
        why="A memory leak of a controller must not take down its node. The controller may use spare CPU.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        types=("Deployment", "StatefulSet"),
        check=_unbounded_service,
    ),
    Rule(
        name="non-root",
        why="Root in a container is root on the node after a container escape.",
        link=RESTRICTED,
        types=WORKLOAD_TYPES,
        check=_non_root,
    ),
    Rule(
        name="no-privileges",
        why="Training needs no Linux capabilities, and a container cannot misuse capabilities that it lacks.",
        link=RESTRICTED,
        types=WORKLOAD_TYPES,
        check=_restricted,
    ),
    Rule(
        name="no-host-access",
        why="A pod that shares its node's namespaces or folders can see other pods and the node's credentials.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline",
        types=JOB_TYPES,
        check=_host,
    ),
    Rule(
        name="restricted-namespace",
        why="With this label, the API server rejects pods that these rules would only report.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-admission/",
        types=("kubernetes:core/v1:Namespace",),
        check=_namespace,
    ),
)


RULES: tuple[Rule, ...] = (*CLOUD_RULES, *JOB_RULES)
"""All rules. Their names are unique."""


_RULE_NAMES = tuple(rule.name for rule in RULES)


def _rule_name(value: str) -> str:
    if value not in _RULE_NAMES:
        raise Invalid("policy_rule", f"is not a rule; write one of {', '.join(_RULE_NAMES)}")
    return value


RuleName = Annotated[str, AfterValidator(_rule_name)]


class ExceptionConfig(Section):
    """Resource that may break one rule."""

    rule: RuleName = Field(examples=["images-by-digest"])
    """Name of the rule."""
    resource: Annotated[str, Field(min_length=1)] = Field(examples=["digits-job"])
    """Name of the resource in the program, as in the finding."""
    reason: Annotated[str, Field(min_length=10)] = Field(examples=["the image of the tutorial has only a tag"])
    """Reason of the exception, which the preview shows."""


class PolicyConfig(Section):
    """Settings of the rules in docs/policy.md."""

    levels: dict[RuleName, Literal["mandatory", "advisory", "disabled"]] = Field(default_factory=dict)
    """Levels of rules, instead of their defaults."""
    exceptions: tuple[ExceptionConfig, ...] = ()
    """Resources that may break a rule, with the reason."""
    may_replace: tuple[str, ...] = ()
    """Pools with a running job and buckets with checkpoints that a plan may replace or delete, by their names in the
    preview; remove the entries afterwards."""

    def settings(self) -> Settings:
        """Return the settings as plain values."""
        return Settings(
            levels=dict(self.levels),
            exceptions={(each.rule, each.resource): each.reason for each in self.exceptions},
        )
