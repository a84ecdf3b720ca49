"""What a stack could leave in a cloud: for each kind of thing the command that lists it, and how its answer is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One kind of thing in a cloud."""

    kind: str
    """What people call it."""
    words: tuple[str, ...]
    """Command that lists all of them as JSON, without project and region."""
    rows: str = ""
    """Key of the list in the answer; empty where the answer is the list."""
    name: str = "name"
    """Key of the name in a row; empty where a row is the name."""
    labels: str = "labels"
    """Key of its labels or tags."""
    types: tuple[str, ...] = ()
    """Pulumi's types of it, by which a simulated cloud lists it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """One thing that is there."""

    kind: str
    name: str
    labels: Mapping[str, str]
    """Its labels or tags."""


def read(listing: Listing, answer: Any) -> Iterator[Found]:
    """The things in a cloud's answer."""
    rows = answer.get(listing.rows, []) if listing.rows else answer
    for row in rows or []:
        if isinstance(row, str):
            yield Found(kind=listing.kind, name=row, labels={})
            continue
        # A NAT gateway that is gone is listed for an hour more.
        if row.get("State") == "deleted":
            continue
        labels = row.get(listing.labels) or {}
        if isinstance(labels, list):
            labels = {each["Key"]: each["Value"] for each in labels}
        name = str(row.get(listing.name) or row.get("id") or row)
        yield Found(kind=listing.kind, name=name, labels=labels)


def _compute(kind: str, words: str, *types: str) -> Listing:
    return Listing(kind=kind, words=("gcloud", "compute", *words.split(), "list"), types=types)


GOOGLE = (
    Listing(
        kind="cluster",
        words=("gcloud", "container", "clusters", "list"),
        labels="resourceLabels",
        types=("gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"),
    ),
    _compute("instance group", "instance-groups managed"),
    _compute("instance", "instances"),
    _compute("disk", "disks", "gcp:compute/disk:Disk"),
    _compute("address", "addresses", "gcp:compute/address:Address"),
    _compute("firewall rule", "firewall-rules", "gcp:compute/firewall:Firewall"),
    _compute("endpoint group", "network-endpoint-groups"),
    _compute("forwarding rule", "forwarding-rules"),
    _compute("router", "routers", "gcp:compute/router:Router", "gcp:compute/routerNat:RouterNat"),
    _compute("subnetwork", "networks subnets", "gcp:compute/subnetwork:Subnetwork"),
    _compute("network", "networks", "gcp:compute/network:Network"),
    _compute("resource policy", "resource-policies", "gcp:compute/resourcePolicy:ResourcePolicy"),
    Listing(
        kind="service account",
        words=("gcloud", "iam", "service-accounts", "list"),
        name="email",
        types=("gcp:serviceaccount/account:Account",),
    ),
    Listing(
        kind="binding",
        words=("gcloud", "projects", "get-iam-policy"),
        rows="bindings",
        types=("gcp:projects/iAMMember:IAMMember", "gcp:serviceaccount/iAMMember:IAMMember"),
    ),
    Listing(kind="bucket", words=("gcloud", "storage", "buckets", "list"), types=("gcp:storage/bucket:Bucket",)),
    Listing(
        kind="image repository",
        words=("gcloud", "artifacts", "repositories", "list"),
        types=("gcp:artifactregistry/repository:Repository",),
    ),
    Listing(kind="secret", words=("gcloud", "secrets", "list"), types=("gcp:secretmanager/secret:Secret",)),
)
"""Google Cloud, by https://cloud.google.com/sdk/gcloud/reference; node pools and NAT go with their owners."""


def _ec2(kind: str, verb: str, rows: str, name: str, *types: str) -> Listing:
    named = tuple(f"aws:ec2/{each}" for each in types)
    return Listing(kind=kind, words=("aws", "ec2", verb), rows=rows, name=name, labels="Tags", types=named)


AMAZON = (
    Listing(
        kind="cluster",
        words=("aws", "eks", "list-clusters"),
        rows="clusters",
        types=("aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"),
    ),
    Listing(
        kind="instance group",
        words=("aws", "autoscaling", "describe-auto-scaling-groups"),
        rows="AutoScalingGroups",
        name="AutoScalingGroupName",
        labels="Tags",
    ),
    _ec2(
        "launch template",
        "describe-launch-templates",
        "LaunchTemplates",
        "LaunchTemplateName",
        "launchTemplate:LaunchTemplate",
    ),
    _ec2(
        "placement group", "describe-placement-groups", "PlacementGroups", "GroupName", "placementGroup:PlacementGroup"
    ),
    _ec2("volume", "describe-volumes", "Volumes", "VolumeId"),
    _ec2("network interface", "describe-network-interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    _ec2("security group", "describe-security-groups", "SecurityGroups", "GroupName", "securityGroup:SecurityGroup"),
    _ec2("NAT gateway", "describe-nat-gateways", "NatGateways", "NatGatewayId", "natGateway:NatGateway"),
    _ec2("address", "describe-addresses", "Addresses", "AllocationId", "eip:Eip"),
    _ec2(
        "internet gateway",
        "describe-internet-gateways",
        "InternetGateways",
        "InternetGatewayId",
        "internetGateway:InternetGateway",
    ),
    _ec2("VPC endpoint", "describe-vpc-endpoints", "VpcEndpoints", "VpcEndpointId", "vpcEndpoint:VpcEndpoint"),
    _ec2("route table", "describe-route-tables", "RouteTables", "RouteTableId", "routeTable:RouteTable"),
    _ec2("subnet", "describe-subnets", "Subnets", "SubnetId", "subnet:Subnet"),
    _ec2("VPC", "describe-vpcs", "Vpcs", "VpcId", "vpc:Vpc"),
    Listing(
        kind="load balancer",
        words=("aws", "elbv2", "describe-load-balancers"),
        rows="LoadBalancers",
        name="LoadBalancerName",
    ),
    Listing(
        kind="role", words=("aws", "iam", "list-roles"), rows="Roles", name="RoleName", types=("aws:iam/role:Role",)
    ),
    Listing(
        kind="policy",
        words=("aws", "iam", "list-policies", "--scope=Local"),
        rows="Policies",
        name="PolicyName",
        types=("aws:iam/policy:Policy",),
    ),
    Listing(
        kind="OpenID provider",
        words=("aws", "iam", "list-open-id-connect-providers"),
        rows="OpenIDConnectProviderList",
        name="Arn",
        types=("aws:iam/openIdConnectProvider:OpenIdConnectProvider",),
    ),
    Listing(
        kind="key",
        words=("aws", "kms", "list-aliases"),
        rows="Aliases",
        name="AliasName",
        types=("aws:kms/alias:Alias",),
    ),
    Listing(
        kind="log group",
        words=("aws", "logs", "describe-log-groups"),
        rows="logGroups",
        name="logGroupName",
        types=("aws:cloudwatch/logGroup:LogGroup",),
    ),
    Listing(
        kind="bucket",
        words=("aws", "s3api", "list-buckets"),
        rows="Buckets",
        name="Name",
        types=("aws:s3/bucket:Bucket",),
    ),
    Listing(
        kind="image repository",
        words=("aws", "ecr", "describe-repositories"),
        rows="repositories",
        name="repositoryName",
        types=("aws:ecr/repository:Repository",),
    ),
    Listing(
        kind="secret",
        words=("aws", "secretsmanager", "list-secrets"),
        rows="SecretList",
        name="Name",
        labels="Tags",
        types=("aws:secretsmanager/secret:Secret",),
    ),
)
"""AWS, by https://docs.aws.amazon.com/cli/latest/reference/; what is a part of another goes with it."""
