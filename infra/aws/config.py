"""EksConfig: the typed settings of an EKS platform, as the stack's YAML gives them. No Pulumi."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.hardware.aws_regions import ZONES, ZONES_BY_ACCOUNT
from infra.hardware.eks_versions import DEFAULT_EKS_VERSION
from infra.hardware.provisioning_model import ProvisioningModel
from infra.image.config import ImageConfig
from infra.settings.types import BARE_BUCKET, ONE_OR_MANY, Cidr, NamespaceName, ReachingCidr, Section, matched

CLUSTER_NAME_LIMIT = 100
"""https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html"""
POOL_NAME_LIMIT = 63
"""https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html"""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]")
_CAPACITY = re.compile(r"on-demand|spot|(reservation|capacity-block):cr-[0-9a-f]{8,17}")
_ACCOUNT = re.compile(r"\d{12}")
_ADDON_VERSION = re.compile(r"v\d+\.\d+\.\d+-eksbuild\.\d+")
_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+")
_BUCKET = re.compile(r"[a-z0-9]([-a-z0-9]{1,61})[a-z0-9]")
_VERSION = re.compile(r"1\.\d\d")


def _name(limit: int, example: str) -> AfterValidator:
    message = (
        f"must have 1 to {limit} lower-case letters, digits and '-', first a letter, last no '-'; "
        f"write for example '{example}'"
    )
    return matched(_NAME, message, limit)


def _one_capacity(value: object) -> object:
    """Refuse several ways to get nodes: a managed node group has one."""
    several = value.split(",") if isinstance(value, str) else value
    if isinstance(several, list) and len(several) > 1:
        raise ValueError(
            "a pool of EKS has one: on-demand, spot, 'reservation:cr-ID' or 'capacity-block:cr-ID'; write "
            f"`capacity: {several[0]}`, and a further pool for each other"
        )
    return value


EksZone = Annotated[str, matched(_ZONE, "must be an availability zone; write for example 'us-west-2a'")]
"""An availability zone of AWS."""
S3BucketName = Annotated[str, matched(_BUCKET, f"must be 3 to 63 lower-case letters, digits and '-', {BARE_BUCKET}")]
"""A bucket of S3."""
EksCapacity = Annotated[
    str,
    matched(
        _CAPACITY,
        "is no way to get capacity; write on-demand, spot, 'reservation:cr-0123456789abcdef0' or "
        "'capacity-block:cr-0123456789abcdef0'",
    ),
    BeforeValidator(_one_capacity),
]
"""A way to get nodes."""


Addon = Literal[
    "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "eks-node-monitoring-agent", "aws-ebs-csi-driver"
]
"""An add-on that the cluster has."""
AddonVersion = Annotated[str, matched(_ADDON_VERSION, "must be like 'v1.12.3-eksbuild.1'")]
"""A version of one: https://docs.aws.amazon.com/eks/latest/userguide/eks-add-ons.html"""


class EksNetworkConfig(Section):
    """Address ranges of the cluster's own VPC."""

    vpc: Cidr = "10.0.0.0/16"
    """Range of the VPC, /16 to /18: a quarter for the nodes and pods of each zone, the last for what is public."""
    services: Cidr = "172.20.0.0/16"
    """Range of the Kubernetes services, outside that of the VPC."""
    nat_per_zone: bool = False
    """Whether each zone has a NAT gateway of its own: dearer, and no zone depends on another."""


class EksSystemPoolConfig(Section):
    """The nodes that run what is not training: operators, DNS, metrics."""

    machine_type: str = "m7i.large"
    """EC2 instance type."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of nodes."""


class EksPoolConfig(Section):
    """Nodes of one kind for the jobs: a managed node group."""

    name: Annotated[str, _name(POOL_NAME_LIMIT, "gpus")] = Field(examples=["gpus"])
    """Name of the pool, unique in the platform."""
    machine_type: str = "g4dn.12xlarge"
    """EC2 instance type; it carries the GPUs."""
    nodes: Annotated[int, Field(ge=1, le=15_000)] = 2
    """Number of nodes."""
    capacity: EksCapacity = "on-demand"
    """Where nodes come from: `on-demand`, `spot`, `reservation:cr-ID` or `capacity-block:cr-ID`."""
    zones: Annotated[tuple[EksZone, ...], ONE_OR_MANY] = ()
    """Zones of the nodes; by default one zone for nodes with EFA and all of the platform's for others."""
    efa: bool | None = None
    """Whether nodes have Elastic Fabric Adapters; by default they have if the type has them and there are several."""
    placement_group: bool | None = None
    """True if nodes are placed close to each other; by default nodes with EFA are, unless they are reserved."""
    disk_size_gb: Annotated[int, Field(ge=20, le=16_384)] = 100
    """Size of each node's boot disk in GB."""
    disk_type: Literal["gp3", "io2"] = "gp3"
    """Type of each node's boot disk."""

    @property
    def model(self) -> ProvisioningModel:
        """Provisioning model of the nodes."""
        return ProvisioningModel.parse(self.capacity)


class EksBucketConfig(Section):
    """The S3 bucket of checkpoints, metrics and profiles."""

    name: S3BucketName | None = None
    """Name of the bucket; by default the cluster's name with a random suffix."""
    prefix: Annotated[str, _name(63, "jobs")] = "jobs"
    """Prefix in the bucket that jobs may read and write; they reach nothing else."""
    keep: bool = True
    """Whether the bucket and all that is in it outlive the stack; with false they go with it, checkpoints too."""
    profile_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days after which profiles (`profiles/` below the prefix) are deleted."""
    checkpoint_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """Days after which checkpoints (`checkpoints/` below the prefix) are deleted; by default never."""
    restore_days: Annotated[int, Field(ge=1, le=365)] = 7
    """Days in which what was deleted or written over can be restored."""


class EcrConfig(Section):
    """The ECR repository that the trainer image is pushed to."""

    keep_images: Annotated[int, Field(ge=1, le=1000)] = 10
    """Newest images that clean-up keeps."""


class EksConfig(Section):
    """An EKS cluster with its network, node groups, bucket and registry, made and removed by the stack."""

    kind: Literal["eks"]
    """Amazon Elastic Kubernetes Service."""
    account: Annotated[str, matched(_ACCOUNT, "must be the 12 digits of an AWS account, in quotes")] | None = None
    """AWS account that the stack may touch; by default the one of the credentials."""
    region: Annotated[str, matched(_REGION, "must be a region of AWS; write for example 'us-west-2'")] = "us-west-2"
    """AWS region."""
    zones: tuple[EksZone, ...] = ()
    """Zones of the VPC, two or three; by default the region's first three, mostly a, b and c."""
    name: Annotated[str, _name(CLUSTER_NAME_LIMIT, "eks-dist")] = "eks-dist"
    """Name of the cluster and prefix of what is made for it."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, made and removed by the stack."""
    kubernetes_version: Annotated[str, matched(_VERSION, "must be like '1.36', in quotes")] = DEFAULT_EKS_VERSION
    """Minor version of Kubernetes of the control plane and all nodes; a cluster that stands goes up one at a time."""
    check_availability: bool = True
    """Whether versions, zones and instance types of a region that Trainyard does not know of (those of 2026-11) are \
refused."""
    network: EksNetworkConfig = EksNetworkConfig()
    """Address ranges."""
    authorized_networks: tuple[ReachingCidr, ...] = ()
    """Address ranges that may reach the API server from outside the VPC; by default there is no public endpoint, and \
`pulumi up` must run inside the VPC or a network joined to it."""
    admins: tuple[
        Annotated[
            str, matched(_PRINCIPAL, "must be the ARN of an IAM role or user; write 'arn:aws:iam::...:role/...'")
        ],
        ...,
    ] = ()
    """IAM roles and users that administer the cluster, in addition to the one that makes it; EKS refuses a second \
entry for that one."""
    deletion_protection: bool = False
    """Whether AWS refuses to delete the cluster; `make down` then fails until it is off."""
    system_pool: EksSystemPoolConfig = EksSystemPoolConfig()
    """Nodes for what is not training."""
    pools: tuple[EksPoolConfig, ...] = (EksPoolConfig(name="gpus"),)
    """Nodes for the jobs."""
    bucket: EksBucketConfig = EksBucketConfig()
    """Where jobs keep checkpoints and metrics."""
    registry: EcrConfig = EcrConfig()
    """Where the trainer image is pushed to."""
    image: ImageConfig = ImageConfig(platforms=("linux/amd64",))
    """The trainer image."""
    log_days: Literal[7, 14, 30, 60, 90, 180, 365] = 30
    """Days that the control plane's logs are kept."""
    addon_versions: dict[Addon, AddonVersion] = Field(default={}, examples=["{coredns: v1.12.3-eksbuild.1}"])
    """Versions of EKS add-ons by name; by default AWS's own for the version of Kubernetes, which it may change."""

    @property
    def cluster_label(self) -> str:
        """Tag of what is made for the cluster; roles and buckets are the account's, so it names the region too."""
        return f"{self.name}.{self.region}"

    @property
    def all_zones(self) -> tuple[str, ...]:
        """Zones of the VPC."""
        known = ZONES.get(self.region) or tuple(f"{self.region}{letter}" for letter in "abc")
        return self.zones or known[: 2 if self.region in ZONES_BY_ACCOUNT else 3]
