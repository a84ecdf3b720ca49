"""Resource kinds that a stack could leave in a cloud: for each its listing command and the format of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.naming import CLUSTER_LABEL


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A kind of resource in a cloud."""

    kind: str
    """Name of the kind."""
    words: tuple[str, ...]
    """Command that lists all resources of the kind as JSON, without project.

    `{region}`, `{name}` and `{label}` stand for the stack's region, its cluster and the label of the cluster's
    resources.
    """
    rows: str = ""
    """Key of the list in the answer; empty if the answer is the list."""
    name: str = "name"
    """Key of the name in a row. A row that is a string is itself the name."""
    id: str = ""
    """Key of the provider's id, if it is not the name."""
    labels: str = "labels"
    """Key of the labels or tags."""
    tags: tuple[str, ...] = ()
    """Command that returns the tags of one resource, `{id}`, if the listing has none."""
    types: tuple[str, ...] = ()
    """Pulumi's types of the kind, by which a simulated cloud lists it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A resource that exists."""

    kind: str
    name: str
    labels: Mapping[str, str]
    """Its labels or tags."""
    id: str = ""
    """The provider's id for it."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Its other string fields, under Pulumi's names."""

    @property
    def network(self) -> str:
        """Name or id of its network; empty if unknown."""
        facts = self.facts
        return (facts.get("network") or facts.get("vpcId") or facts.get("vPCId") or "").rpartition("/")[2]


def read(listing: Listing, answer: Any) -> Iterator[Found]:
    """Yield the resources in a cloud's answer."""
    rows = answer.get(listing.rows, []) if listing.rows else answer
    for row in rows or []:
        if isinstance(row, str):
            yield Found(kind=listing.kind, name=row, labels={}, id=row)
            continue
        # AWS lists a deleted NAT gateway for another hour.
        if row.get("State") == "deleted":
            continue
        name = str(row.get(listing.name) or row.get("id") or row)
        yield Found(
            kind=listing.kind,
            name=name,
            labels=labels_of(row.get(listing.labels)),
            id=str(row.get(listing.id) or name),
            facts={f"{key[0].lower()}{key[1:]}": value for key, value in row.items() if isinstance(value, str)},
        )


def labels_of(found: Any) -> dict[str, str]:
    """Return labels, or tags as AWS lists them."""
    if isinstance(found, list):
        return {str(each["Key"]): str(each["Value"]) for each in found}
    return dict(found or {})


def _compute(kind: str, words: str, *types: str) -> Listing:
    return Listing(kind=kind, words=("gcloud", "compute", *words.split(), "list"), types=types)


GOOGLE = (
    Listing(
        kind="cluster",
        words=("gcloud", "container", "clusters", "list"),
        labels="resourceLabels",
        types=("gcp:container/cluster:Cluster",),
    ),
    _compute("instance group", "instance-groups"),
    _compute("instance", "instances"),
    _compute("disk", "disks", "gcp:compute/disk:Disk"),
    _compute("address", "addresses", "gcp:compute/address:Address"),
    _compute("firewall rule", "firewall-rules", "gcp:compute/firewall:Firewall"),
    _compute("endpoint group", "network-endpoint-groups"),
    _compute("forwarding rule", "forwarding-rules"),
    _compute("router", "routers", "gcp:compute/router:Router"),
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
        types=("gcp:projects/iAMMember:IAMMember",),
    ),
    Listing(kind="bucket", words=("gcloud", "storage", "buckets", "list"), types=("gcp:storage/bucket:Bucket",)),
    Listing(
        kind="image repository",
        words=("gcloud", "artifacts", "repositories", "list"),
        types=("gcp:artifactregistry/repository:Repository",),
    ),
    Listing(kind="secret", words=("gcloud", "secrets", "list"), types=("gcp:secretmanager/secret:Secret",)),
)
"""Kinds of Google Cloud, from https://cloud.google.com/sdk/gcloud/reference.

Node pools and NAT go with their owners.
"""


def _ec2(kind: str, verb: str, rows: str, name: str, type_: str = "", id_: str = "", labels: str = "Tags") -> Listing:
    types = (f"aws:ec2/{type_}",) if type_ else ()
    return Listing(kind=kind, words=("aws", "ec2", verb), rows=rows, name=name, id=id_, labels=labels, types=types)


AMAZON = (
    Listing(
        kind="cluster",
        words=("aws", "eks", "list-clusters"),
        rows="clusters",
        types=("aws:eks/cluster:Cluster",),
    ),
    Listing(
        kind="instance group",
        words=("aws", "autoscaling", "describe-auto-scaling-groups"),
        rows="AutoScalingGroups",
        name="AutoScalingGroupName",
        labels="Tags",
    ),
    # First: many of the other resources are identified by their VPC.
    _ec2("VPC", "describe-vpcs", "Vpcs", "VpcId", "vpc:Vpc"),
    Listing(
        kind="instance",
        words=(
            *("aws", "ec2", "describe-instances", "--query=Reservations[].Instances[]"),
            "--filters=Name=instance-state-name,Values=pending,running,shutting-down,stopping,stopped",
        ),
        name="InstanceId",
        labels="Tags",
    ),
    _ec2(
        "launch template",
        "describe-launch-templates",
        "LaunchTemplates",
        "LaunchTemplateName",
        "launchTemplate:LaunchTemplate",
        "LaunchTemplateId",
    ),
    _ec2(
        "placement group", "describe-placement-groups", "PlacementGroups", "GroupName", "placementGroup:PlacementGroup"
    ),
    _ec2("volume", "describe-volumes", "Volumes", "VolumeId"),
    _ec2(
        "network interface",
        "describe-network-interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        labels="TagSet",
    ),
    _ec2(
        "security group",
        "describe-security-groups",
        "SecurityGroups",
        "GroupName",
        "securityGroup:SecurityGroup",
        "GroupId",
    ),
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
    Listing(
        kind="load balancer",
        words=("aws", "elbv2", "describe-load-balancers"),
        rows="LoadBalancers",
        name="LoadBalancerName",
    ),
    Listing(
        kind="classic load balancer",
        words=("aws", "elb", "describe-load-balancers"),
        rows="LoadBalancerDescriptions",
        name="LoadBalancerName",
    ),
    Listing(
        kind="role",
        words=("aws", "iam", "list-roles"),
        rows="Roles",
        name="RoleName",
        tags=("aws", "iam", "list-role-tags", "--role-name={id}"),
        types=("aws:iam/role:Role",),
    ),
    Listing(
        kind="policy",
        words=("aws", "iam", "list-policies", "--scope=Local"),
        rows="Policies",
        name="PolicyName",
        id="Arn",
        tags=("aws", "iam", "list-policy-tags", "--policy-arn={id}"),
        types=("aws:iam/policy:Policy",),
    ),
    Listing(
        kind="OpenID provider",
        words=("aws", "iam", "list-open-id-connect-providers"),
        rows="OpenIDConnectProviderList",
        name="Arn",
        tags=("aws", "iam", "list-open-id-connect-provider-tags", "--open-id-connect-provider-arn={id}"),
        types=("aws:iam/openIdConnectProvider:OpenIdConnectProvider",),
    ),
    Listing(
        kind="key",
        words=(
            *("aws", "resourcegroupstaggingapi", "get-resources", "--resource-type-filters=kms:key"),
            f"--tag-filters=Key={CLUSTER_LABEL},Values={{label}}",
        ),
        rows="ResourceTagMappingList",
        name="ResourceARN",
        labels="Tags",
        types=("aws:kms/key:Key",),
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
        words=("aws", "s3api", "list-buckets", "--bucket-region={region}"),
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
"""Kinds of AWS, from https://docs.aws.amazon.com/cli/latest/reference/. Parts of another resource go with it."""
PARTS = (
    Listing(
        kind="route table association",
        words=("aws", "ec2", "describe-route-tables", "--query=RouteTables[].Associations[]"),
        name="RouteTableAssociationId",
        types=("aws:ec2/routeTableAssociation:RouteTableAssociation",),
    ),
    Listing(
        kind="pod identity association",
        words=("aws", "eks", "list-pod-identity-associations", "--cluster-name={name}"),
        rows="associations",
        name="associationId",
        types=("aws:eks/podIdentityAssociation:PodIdentityAssociation",),
    ),
)
"""Kinds that go with their owner and have an id that only AWS knows."""
