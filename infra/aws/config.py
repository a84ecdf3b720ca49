"""EksConfig: the settings of an EKS platform."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from infra.cloud import ImageConfig, ImagePlatforms, name_pattern
from infra.hardware.ec2 import AWS_ZONES, AWS_ZONES_BY_ACCOUNT
from infra.hardware.machines import ProvisioningModel
from infra.hardware.versions import DEFAULT_EKS_VERSION
from settings.problem import Invalid
from settings.types import BUCKET_NAME_HINT, ONE_OR_MANY, Cidr, ClientCidr, NamespaceName, Section, match_pattern

CLUSTER_NAME_LIMIT = 100
"""Maximum length: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html"""
POOL_NAME_LIMIT = 63
"""Maximum length: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html"""

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]")
_CAPACITY = re.compile(r"on-demand|spot|(reservation|capacity-block):cr-[0-9a-f]{8,17}")
_ACCOUNT = re.compile(r"\d{12}")
_ADDON_VERSION = re.compile(r"v\d+\.\d+\.\d+-eksbuild\.\d+")
_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+")
_BUCKET = re.compile(r"[a-z0-9]([-a-z0-9]{1,61})[a-z0-9]")
_VERSION = re.compile(r"1\.\d\d")


def _one_capacity(value: object) -> object:
    """Return one provisioning model unchanged. Reject several, because a managed node group has exactly one."""
    values = value.split(",") if isinstance(value, str) else value
    if isinstance(values, list) and len(values) > 1:
        raise Invalid(
            "several_capacities",
            "must be one of on-demand, spot, 'reservation:cr-ID' or 'capacity-block:cr-ID' for an EKS pool; write "
            f"`capacity: {values[0]}`, and add a pool for each other value",
        )
    return value


EksZone = Annotated[
    str, match_pattern("aws_zone", _ZONE, "must be an availability zone; write for example 'us-west-2a'")
]
"""AWS availability zone."""
S3BucketName = Annotated[
    str,
    match_pattern("s3_bucket_name", _BUCKET, f"must be 3 to 63 lower-case letters, digits and '-', {BUCKET_NAME_HINT}"),
]
"""Name of an S3 bucket."""
EksCapacity = Annotated[
    str,
    match_pattern(
        "eks_capacity",
        _CAPACITY,
        "must be one of on-demand, spot, 'reservation:cr-0123456789abcdef0' or 'capacity-block:cr-0123456789abcdef0'",
    ),
    BeforeValidator(_one_capacity),
]
"""Provisioning model of nodes."""
Addon = Literal[
    "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "eks-node-monitoring-agent", "aws-ebs-csi-driver"
]
"""EKS add-on of the cluster."""
AddonVersion = Annotated[
    str, match_pattern("addon_version", _ADDON_VERSION, "must be a version such as 'v1.12.3-eksbuild.1'")
]
"""Version of an add-on: https://docs.aws.amazon.com/eks/latest/userguide/eks-add-ons.html"""


class EksNetworkConfig(Section):
    """Address ranges of the cluster's VPC."""

    vpc: Cidr = "10.0.0.0/16"
    """Range of the VPC, /16 to /18. Each zone's nodes and pods get a quarter; the last quarter is for public
    subnets."""
    services: Cidr = "172.20.0.0/16"
    """Range of the Kubernetes Services, outside the VPC's range."""
    nat_per_zone: bool = False
    """Create a NAT gateway in each zone, not only in the first; other zones then keep internet access if the first
    fails, at a higher cost."""


class EksSystemPoolConfig(Section):
    """Nodes for system pods, such as operators, DNS and metrics."""

    machine_type: str = "m7i.large"
    """EC2 instance type."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of nodes."""


class EksPoolConfig(Section):
    """Pool of identical nodes for jobs, a managed node group."""

    name: Annotated[str, name_pattern("eks_name", POOL_NAME_LIMIT, "gpus")] = Field(examples=["gpus"])
    """Name of the pool, unique in the platform."""
    machine_type: str = "g4dn.12xlarge"
    """EC2 instance type, which determines the GPUs."""
    nodes: Annotated[int, Field(ge=1, le=15_000)] = 2
    """Number of nodes."""
    capacity: EksCapacity = "on-demand"
    """Provisioning model: `on-demand`, `spot`, `reservation:cr-ID` or `capacity-block:cr-ID`."""
    zones: Annotated[tuple[EksZone, ...], ONE_OR_MANY] = ()
    """Zones of the nodes; by default the platform's first zone for nodes with EFA or a placement group, else all zones
    of the platform."""
    efa: bool | None = None
    """Attach Elastic Fabric Adapters; by default true for two or more nodes of a type with EFA."""
    placement_group: bool | None = None
    """Place nodes in a cluster placement group; by default true for nodes with EFA, unless they are reserved."""
    disk_size_gb: Annotated[int, Field(ge=20, le=16_384)] = 100
    """Size of each node's boot disk in GB."""
    disk_type: Literal["gp3", "io2"] = "gp3"
    """Type of each node's boot disk. A disk of type `io2` also costs money for its 3,000 operations a second."""

    @cached_property
    def model(self) -> ProvisioningModel:
        """Provisioning model of the nodes."""
        return ProvisioningModel.parse(self.capacity)


class EksBucketConfig(Section):
    """S3 bucket of checkpoints, metrics and profiles."""

    name: S3BucketName | None = None
    """Name of the bucket; by default the cluster's name with a random suffix."""
    prefix: Annotated[str, name_pattern("eks_name", 63, "jobs")] = "jobs"
    """Prefix of the jobs' objects; jobs can access only objects with this prefix."""
    keep: bool = True
    """Keep the bucket and its objects when the stack is destroyed; `false` deletes them, including checkpoints."""
    profile_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days after which S3 deletes profiles (`profiles/` below the prefix)."""
    checkpoint_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """Days after which S3 deletes checkpoints (`checkpoints/` below the prefix); by default never."""
    restore_days: Annotated[int, Field(ge=1, le=365)] = 7
    """Days during which deleted and overwritten objects can be restored."""


class EcrConfig(Section):
    """ECR repository of the trainer image."""

    keep_images: Annotated[int, Field(ge=1, le=1000)] = 100
    """Number of images that the repository keeps; AWS deletes older ones, even those of running jobs. The default is
    high, because each edit of a job's requirements pushes an image. Images share most of their layers."""


class EksImageConfig(ImageConfig):
    """Trainer image: built with buildx from this checkout and pushed, or prebuilt."""

    platforms: ImagePlatforms = ("linux/amd64",)
    """Processor architectures of the image."""


class EksConfig(Section):
    """EKS cluster that the stack creates and deletes, with its network, node groups, bucket and registry. With
    `bucket.keep`, the bucket stays."""

    kind: Literal["eks"]
    """Amazon Elastic Kubernetes Service."""
    account: (
        Annotated[str, match_pattern("aws_account", _ACCOUNT, "must be the 12 digits of an AWS account, in quotes")]
        | None
    ) = None
    """Id of the only AWS account that the stack may change; by default the account of the credentials."""
    region: Annotated[
        str, match_pattern("aws_region", _REGION, "must be a region of AWS; write for example 'us-west-2'")
    ] = "us-west-2"
    """AWS region."""
    zones: tuple[EksZone, ...] = ()
    """Zones of the VPC, two or three; by default the first three of the region, usually a, b and c. In us-west-1, write
    two that your account has."""
    name: Annotated[str, name_pattern("eks_name", CLUSTER_NAME_LIMIT, "eks-dist")] = "eks-dist"
    """Name of the cluster and prefix of its resources' names."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, created and deleted by the stack."""
    kubernetes_version: Annotated[
        str, match_pattern("eks_version", _VERSION, "must be a minor version in quotes, such as '1.36'")
    ] = DEFAULT_EKS_VERSION
    """Kubernetes minor version of the control plane and all nodes; a deployed cluster upgrades one minor version at a
    time."""
    check_availability: bool = True
    """Reject versions and zones that are not in Trainyard's tables of 2026-11, and instance types that the tables do
    not list for the region."""
    network: EksNetworkConfig = EksNetworkConfig()
    """Address ranges."""
    authorized_networks: tuple[ClientCidr, ...] = ()
    """Address ranges with access to the API server from outside the VPC; by default there is no public endpoint, and
    `pulumi up` must run inside the VPC or a connected network."""
    admins: tuple[
        Annotated[
            str,
            match_pattern(
                "aws_principal",
                _PRINCIPAL,
                "must be the ARN of an IAM role or user; write for example 'arn:aws:iam::123456789012:role/admin'",
            ),
        ],
        ...,
    ] = ()
    """IAM roles and users that administer the cluster, in addition to its creator; do not list the creator, because EKS
    rejects a second entry."""
    deletion_protection: bool = False
    """Enable deletion protection in AWS; `make down` then fails until it is off."""
    system_pool: EksSystemPoolConfig = EksSystemPoolConfig()
    """Nodes for system pods."""
    pools: tuple[EksPoolConfig, ...] = (EksPoolConfig(name="gpus"),)
    """Node groups for jobs."""
    bucket: EksBucketConfig = EksBucketConfig()
    """Bucket of checkpoints, metrics and profiles."""
    registry: EcrConfig = EcrConfig()
    """Registry of the trainer image."""
    image: EksImageConfig = EksImageConfig()
    """Trainer image."""
    log_days: Literal[7, 14, 30, 60, 90, 180, 365] = 30
    """Retention of the control plane's logs in days."""
    addon_versions: dict[Addon, AddonVersion] = Field(default={}, examples=["{coredns: v1.12.3-eksbuild.1}"])
    """Versions of EKS add-ons by name; by default AWS chooses the version when it installs an add-on."""

    @property
    def cluster_label(self) -> str:
        """Value of the tag on the cluster's resources. It contains the region, because all regions share IAM roles."""
        return f"{self.name}.{self.region}"

    @property
    def all_zones(self) -> tuple[str, ...]:
        """Zones of the VPC."""
        region_zones = AWS_ZONES.get(self.region) or tuple(f"{self.region}{letter}" for letter in "abc")
        return self.zones or region_zones[: 2 if self.region in AWS_ZONES_BY_ACCOUNT else 3]
