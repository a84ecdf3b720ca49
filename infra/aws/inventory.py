"""Inventory of AWS: the resource kinds that an EKS stack could leave behind, as `aws` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from infra.aws.config import EksConfig
from infra.inventory import CloudResource, Listing, Ownership, RunCommand, labels_from, resources_in
from infra.naming import CLUSTER_LABEL


def _ec2(kind: str, verb: str, rows: str, name: str, type_: str = "", id_: str = "", labels: str = "Tags") -> Listing:
    types = (f"aws:ec2/{type_}",) if type_ else ()
    return Listing(kind=kind, command=("aws", "ec2", verb), rows=rows, name=name, id=id_, labels=labels, types=types)


LISTINGS = (
    Listing(
        kind="cluster",
        command=("aws", "eks", "list-clusters"),
        rows="clusters",
        types=("aws:eks/cluster:Cluster",),
    ),
    Listing(
        kind="instance group",
        command=("aws", "autoscaling", "describe-auto-scaling-groups"),
        rows="AutoScalingGroups",
        name="AutoScalingGroupName",
        labels="Tags",
    ),
    # The VPC comes first, because it identifies many of the other resources.
    _ec2("VPC", "describe-vpcs", "Vpcs", "VpcId", "vpc:Vpc"),
    Listing(
        kind="instance",
        command=(
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
        command=("aws", "elbv2", "describe-load-balancers"),
        rows="LoadBalancers",
        name="LoadBalancerName",
    ),
    Listing(
        kind="classic load balancer",
        command=("aws", "elb", "describe-load-balancers"),
        rows="LoadBalancerDescriptions",
        name="LoadBalancerName",
    ),
    Listing(
        kind="role",
        command=("aws", "iam", "list-roles"),
        rows="Roles",
        name="RoleName",
        tags=("aws", "iam", "list-role-tags", "--role-name={id}"),
        types=("aws:iam/role:Role",),
    ),
    Listing(
        kind="policy",
        command=("aws", "iam", "list-policies", "--scope=Local"),
        rows="Policies",
        name="PolicyName",
        id="Arn",
        tags=("aws", "iam", "list-policy-tags", "--policy-arn={id}"),
        types=("aws:iam/policy:Policy",),
    ),
    Listing(
        kind="OpenID provider",
        command=("aws", "iam", "list-open-id-connect-providers"),
        rows="OpenIDConnectProviderList",
        name="Arn",
        tags=("aws", "iam", "list-open-id-connect-provider-tags", "--open-id-connect-provider-arn={id}"),
        types=("aws:iam/openIdConnectProvider:OpenIdConnectProvider",),
    ),
    Listing(
        kind="key",
        command=(
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
        command=("aws", "logs", "describe-log-groups"),
        rows="logGroups",
        name="logGroupName",
        types=("aws:cloudwatch/logGroup:LogGroup",),
    ),
    Listing(
        kind="bucket",
        command=("aws", "s3api", "list-buckets", "--bucket-region={region}"),
        rows="Buckets",
        name="Name",
        types=("aws:s3/bucket:Bucket",),
    ),
    Listing(
        kind="image repository",
        command=("aws", "ecr", "describe-repositories"),
        rows="repositories",
        name="repositoryName",
        types=("aws:ecr/repository:Repository",),
    ),
    Listing(
        kind="secret",
        command=("aws", "secretsmanager", "list-secrets"),
        rows="SecretList",
        name="Name",
        labels="Tags",
        types=("aws:secretsmanager/secret:Secret",),
    ),
)
"""Resource kinds, from https://docs.aws.amazon.com/cli/latest/reference/, without those that AWS deletes with their
owner."""
PARTS = (
    Listing(
        kind="route table association",
        command=("aws", "ec2", "describe-route-tables", "--query=RouteTables[].Associations[]"),
        name="RouteTableAssociationId",
        types=("aws:ec2/routeTableAssociation:RouteTableAssociation",),
    ),
    Listing(
        kind="pod identity association",
        command=("aws", "eks", "list-pod-identity-associations", "--cluster-name={name}"),
        rows="associations",
        name="associationId",
        types=("aws:eks/podIdentityAssociation:PodIdentityAssociation",),
    ),
)
"""Kinds that AWS deletes with their owner, and whose ids AWS generates."""


def resources(
    listing: Listing, platform: EksConfig, ownership: Ownership, run_json: RunCommand
) -> Iterator[CloudResource]:
    """Yield all resources of a kind in the platform's region, except keys that are already deleted."""
    options = (f"--region={platform.region}", "--output=json")
    command = [
        word.format(region=platform.region, name=platform.name, label=ownership.label) for word in listing.command
    ]
    for resource in resources_in(listing, run_json(*command, *options)):
        if ownership.needs_tags(listing, resource):
            output = run_json(*(word.format(id=resource.id) for word in listing.tags), *options)
            yield replace(resource, labels=labels_from(output["Tags"]))
        elif listing.kind != "key":
            yield resource
        elif not _is_pending_deletion(resource, options, run_json):
            yield replace(resource, id=resource.name.rpartition("/")[2])


def _is_pending_deletion(key: CloudResource, options: tuple[str, ...], run_json: RunCommand) -> bool:
    """Return True if a key is scheduled for deletion. It can be restored for a week and costs nothing."""
    output = run_json("aws", "kms", "describe-key", f"--key-id={key.name}", *options)
    return bool(output["KeyMetadata"]["KeyState"] == "PendingDeletion")


def generated_names(cluster: str) -> Mapping[str, str]:
    """Return patterns of the names that EKS generates for a cluster, by kind."""
    name = re.escape(cluster)
    return {
        "security group": rf"eks-cluster-sg-{name}-\d+",
        "log group": f"/aws/(eks|containerinsights)/{name}/.*",
    }
