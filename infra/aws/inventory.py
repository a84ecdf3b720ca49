"""AWS resource kinds of an EKS stack: the `aws` commands that list them, and the IAM policy to manage the stack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from infra.aws.config import EksConfig
from infra.inventory import CloudResource, Listing, Ownership, PlannedResource, RunCommand, labels_from, resources_in
from infra.naming import CLUSTER_LABEL


def _aws(
    kind: str, command: str, rows: str = "", name: str = "name", type_: str = "", *, tags: str = "", **fields: str
) -> Listing:
    """Return the listing of a kind. `type_` is a Pulumi type without `aws:`, `fields` are further fields of Listing."""
    tags_command = ("aws", *tags.split()) if tags else ()
    types = (f"aws:{type_}",) if type_ else ()
    command_words = ("aws", *command.split())
    return Listing(kind=kind, command=command_words, tags=tags_command, rows=rows, name=name, types=types, **fields)


def _ec2(kind: str, noun: str, rows: str, name: str, type_: str = "", labels: str = "Tags", **fields: str) -> Listing:
    """Return the listing of `aws ec2 describe-<noun>`. `type_` is a Pulumi type without `aws:ec2/`."""
    type_ = type_ and f"ec2/{type_}"
    return _aws(kind, f"ec2 describe-{noun}", rows, name, type_, labels=labels, **fields)


_NOT_TERMINATED = "--filters=Name=instance-state-name,Values=pending,running,shutting-down,stopping,stopped"
_OPEN_ID_TAGS = "iam list-open-id-connect-provider-tags --open-id-connect-provider-arn={id}"
_KEYS = (
    "resourcegroupstaggingapi get-resources --resource-type-filters=kms:key "
    f"--tag-filters=Key={CLUSTER_LABEL},Values={{label}}"
)
LISTINGS = (
    _aws("cluster", "eks list-clusters", "clusters", type_="eks/cluster:Cluster"),
    _aws(
        "instance group",
        "autoscaling describe-auto-scaling-groups",
        "AutoScalingGroups",
        "AutoScalingGroupName",
        labels="Tags",
    ),
    # List the VPC before the resources below, because it identifies many of them.
    _ec2("VPC", "vpcs", "Vpcs", "VpcId", "vpc:Vpc"),
    _ec2("instance", f"instances --query=Reservations[].Instances[] {_NOT_TERMINATED}", "", "InstanceId"),
    _ec2(
        "launch template",
        "launch-templates",
        "LaunchTemplates",
        "LaunchTemplateName",
        "launchTemplate:LaunchTemplate",
        id="LaunchTemplateId",
    ),
    _ec2("placement group", "placement-groups", "PlacementGroups", "GroupName", "placementGroup:PlacementGroup"),
    _ec2("volume", "volumes", "Volumes", "VolumeId"),
    _ec2("network interface", "network-interfaces", "NetworkInterfaces", "NetworkInterfaceId", labels="TagSet"),
    _ec2(
        "security group", "security-groups", "SecurityGroups", "GroupName", "securityGroup:SecurityGroup", id="GroupId"
    ),
    _ec2("NAT gateway", "nat-gateways", "NatGateways", "NatGatewayId", "natGateway:NatGateway"),
    _ec2("address", "addresses", "Addresses", "AllocationId", "eip:Eip"),
    _ec2(
        "internet gateway",
        "internet-gateways",
        "InternetGateways",
        "InternetGatewayId",
        "internetGateway:InternetGateway",
    ),
    _ec2("VPC endpoint", "vpc-endpoints", "VpcEndpoints", "VpcEndpointId", "vpcEndpoint:VpcEndpoint"),
    _ec2("route table", "route-tables", "RouteTables", "RouteTableId", "routeTable:RouteTable"),
    _ec2("subnet", "subnets", "Subnets", "SubnetId", "subnet:Subnet"),
    _aws("load balancer", "elbv2 describe-load-balancers", "LoadBalancers", "LoadBalancerName"),
    _aws("classic load balancer", "elb describe-load-balancers", "LoadBalancerDescriptions", "LoadBalancerName"),
    _aws("role", "iam list-roles", "Roles", "RoleName", "iam/role:Role", tags="iam list-role-tags --role-name={id}"),
    _aws(
        "policy",
        "iam list-policies --scope=Local",
        "Policies",
        "PolicyName",
        "iam/policy:Policy",
        id="Arn",
        tags="iam list-policy-tags --policy-arn={id}",
    ),
    _aws(
        "OpenID provider",
        "iam list-open-id-connect-providers",
        "OpenIDConnectProviderList",
        "Arn",
        "iam/openIdConnectProvider:OpenIdConnectProvider",
        tags=_OPEN_ID_TAGS,
    ),
    _aws("key", _KEYS, "ResourceTagMappingList", "ResourceARN", "kms/key:Key", labels="Tags"),
    _aws("log group", "logs describe-log-groups", "logGroups", "logGroupName", "cloudwatch/logGroup:LogGroup"),
    _aws("bucket", "s3api list-buckets --bucket-region={region}", "Buckets", "Name", "s3/bucket:Bucket"),
    _aws(
        "image repository", "ecr describe-repositories", "repositories", "repositoryName", "ecr/repository:Repository"
    ),
    _aws("secret", "secretsmanager list-secrets", "SecretList", "Name", "secretsmanager/secret:Secret", labels="Tags"),
)
"""Kinds that AWS does not delete with their parent resource: https://docs.aws.amazon.com/cli/latest/reference/"""
DEPENDENT_LISTINGS = (
    _aws(
        "route table association",
        "ec2 describe-route-tables --query=RouteTables[].Associations[]",
        name="RouteTableAssociationId",
        type_="ec2/routeTableAssociation:RouteTableAssociation",
    ),
    _aws(
        "pod identity association",
        "eks list-pod-identity-associations --cluster-name={name}",
        "associations",
        "associationId",
        "eks/podIdentityAssociation:PodIdentityAssociation",
    ),
)
"""Kinds that AWS deletes with their parent resource. Recovery from an interrupted update looks up their ids."""


def resources(
    listing: Listing, platform: EksConfig, ownership: Ownership, run_json: RunCommand
) -> Iterator[CloudResource]:
    """Yield the resources of a kind in the platform's region, or in the account if the kind has no region.

    Yield a KMS key only if it has the cluster's label and is not scheduled for deletion.
    """
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
    """Return True if a key is scheduled for deletion. Such a key costs nothing."""
    output = run_json("aws", "kms", "describe-key", f"--key-id={key.name}", *options)
    return bool(output["KeyMetadata"]["KeyState"] == "PendingDeletion")


def generated_names(cluster: str) -> Mapping[str, str]:
    """Return patterns of the names that EKS generates for a cluster, by kind."""
    name = re.escape(cluster)
    return {"security group": rf"eks-cluster-sg-{name}-\d+", "log group": f"/aws/(eks|containerinsights)/{name}/.*"}


CLUSTER_TYPE = "aws:eks/cluster:Cluster"
LOG_GROUP_TYPE = "aws:cloudwatch/logGroup:LogGroup"


def cluster_log_group(cluster: str) -> str:
    """Return the name of the group to which EKS writes a cluster's control plane logs.

    EKS may write the last logs of a deleted cluster after the deletion of the group. EKS then recreates the group:
    https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2763
    """
    return f"/aws/eks/{cluster}/cluster"


def late_log_groups(resources: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield name and region of the log group of each EKS cluster among the resources of a state."""
    for each in resources:
        if each.get("type") == CLUSTER_TYPE and (arn := (each.get("outputs") or {}).get("arn")):
            yield cluster_log_group(str(each["id"])), str(arn).split(":")[3]


_INTERFACES = "ec2:DescribeNetworkInterfaces ec2:DetachNetworkInterface ec2:DeleteNetworkInterface"
"""Actions that the provider needs to delete leftover network interfaces before a subnet or security group.

Source: deleteLingeringENIs in the provider's internal/service/ec2/vpc_security_group.go and vpc_subnet.go.
"""
_TAGS = "ec2:CreateTags ec2:DeleteTags"
_S3_READ = """
s3:ListBucket s3:GetBucketLocation s3:GetBucketTagging s3:GetBucketAcl s3:GetBucketCORS s3:GetBucketWebsite
s3:GetBucketVersioning s3:GetAccelerateConfiguration s3:GetBucketRequestPayment s3:GetBucketLogging
s3:GetBucketPolicy s3:GetLifecycleConfiguration s3:GetReplicationConfiguration s3:GetEncryptionConfiguration
s3:GetBucketObjectLockConfiguration
"""

ACTIONS: Mapping[str, Sequence[str]] = {
    kind: actions.split()
    for kind, actions in {
        "aws:cloudwatch/logGroup:LogGroup": """logs:CreateLogGroup logs:DeleteLogGroup logs:DescribeLogGroups
            logs:PutRetentionPolicy logs:DeleteRetentionPolicy logs:ListTagsForResource logs:TagResource
            logs:UntagResource""",
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": f"""ec2:DescribeSecurityGroups
            ec2:DescribeSecurityGroupRules ec2:AuthorizeSecurityGroupIngress ec2:AuthorizeSecurityGroupEgress
            ec2:RevokeSecurityGroupIngress ec2:RevokeSecurityGroupEgress {_TAGS}""",
        "aws:ec2/eip:Eip": f"""ec2:AllocateAddress ec2:ReleaseAddress ec2:DescribeAddresses
            ec2:DescribeAddressesAttribute ec2:DisassociateAddress {_TAGS}""",
        "aws:ec2/internetGateway:InternetGateway": f"""ec2:CreateInternetGateway ec2:AttachInternetGateway
            ec2:DetachInternetGateway ec2:DeleteInternetGateway ec2:DescribeInternetGateways {_TAGS}""",
        "aws:ec2/launchTemplate:LaunchTemplate": """ec2:CreateLaunchTemplate ec2:CreateLaunchTemplateVersion
            ec2:ModifyLaunchTemplate ec2:DeleteLaunchTemplate ec2:DescribeLaunchTemplates
            ec2:DescribeLaunchTemplateVersions""",
        "aws:ec2/natGateway:NatGateway": "ec2:CreateNatGateway ec2:DeleteNatGateway ec2:DescribeNatGateways",
        "aws:ec2/placementGroup:PlacementGroup": """ec2:CreatePlacementGroup ec2:DeletePlacementGroup
            ec2:DescribePlacementGroups""",
        "aws:ec2/routeTable:RouteTable": """ec2:CreateRouteTable ec2:DeleteRouteTable ec2:DescribeRouteTables
            ec2:CreateRoute ec2:ReplaceRoute ec2:DeleteRoute ec2:DisassociateRouteTable""",
        "aws:ec2/routeTableAssociation:RouteTableAssociation": """ec2:AssociateRouteTable
            ec2:ReplaceRouteTableAssociation ec2:DisassociateRouteTable ec2:DescribeRouteTables""",
        "aws:ec2/securityGroup:SecurityGroup": f"""ec2:CreateSecurityGroup ec2:DeleteSecurityGroup
            ec2:DescribeSecurityGroups ec2:DescribeSecurityGroupRules ec2:AuthorizeSecurityGroupIngress
            ec2:AuthorizeSecurityGroupEgress ec2:RevokeSecurityGroupIngress ec2:RevokeSecurityGroupEgress
            {_INTERFACES}""",
        "aws:ec2/subnet:Subnet": f"""ec2:CreateSubnet ec2:DeleteSubnet ec2:DescribeSubnets ec2:ModifySubnetAttribute
            {_INTERFACES}""",
        "aws:ec2/vpc:Vpc": """ec2:CreateVpc ec2:DeleteVpc ec2:DescribeVpcs ec2:ModifyVpcAttribute
            ec2:DescribeVpcAttribute ec2:DescribeNetworkAcls ec2:DescribeRouteTables ec2:DescribeSecurityGroups""",
        "aws:ec2/vpcEndpoint:VpcEndpoint": """ec2:CreateVpcEndpoint ec2:ModifyVpcEndpoint ec2:DeleteVpcEndpoints
            ec2:DescribeVpcEndpoints ec2:DescribePrefixLists ec2:DescribeNetworkInterfaces
            route53:AssociateVPCWithHostedZone route53:DisassociateVPCFromHostedZone""",
        "aws:ecr/lifecyclePolicy:LifecyclePolicy": """ecr:PutLifecyclePolicy ecr:GetLifecyclePolicy
            ecr:DeleteLifecyclePolicy""",
        "aws:ecr/repository:Repository": """ecr:CreateRepository ecr:DeleteRepository ecr:DescribeRepositories
            ecr:PutImageTagMutability ecr:PutImageScanningConfiguration ecr:ListTagsForResource ecr:TagResource
            ecr:UntagResource""",
        "aws:eks/accessEntry:AccessEntry": """eks:CreateAccessEntry eks:DescribeAccessEntry eks:UpdateAccessEntry
            eks:DeleteAccessEntry""",
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": """eks:AssociateAccessPolicy
            eks:DisassociateAccessPolicy eks:ListAssociatedAccessPolicies""",
        "aws:eks/addon:Addon": """eks:CreateAddon eks:DescribeAddon eks:UpdateAddon eks:DeleteAddon eks:DescribeUpdate
            eks:CreatePodIdentityAssociation eks:DescribePodIdentityAssociation eks:UpdatePodIdentityAssociation
            eks:DeletePodIdentityAssociation iam:PassRole iam:GetRole""",
        "aws:eks/cluster:Cluster": """eks:CreateCluster eks:DescribeCluster eks:UpdateClusterConfig
            eks:UpdateClusterVersion eks:DescribeUpdate eks:DeleteCluster eks:TagResource eks:UntagResource
            iam:PassRole iam:CreateServiceLinkedRole kms:DescribeKey kms:CreateGrant""",
        "aws:eks/nodeGroup:NodeGroup": """eks:CreateNodegroup eks:DescribeNodegroup eks:UpdateNodegroupConfig
            eks:UpdateNodegroupVersion eks:DescribeUpdate eks:DeleteNodegroup iam:PassRole
            iam:CreateServiceLinkedRole ec2:RunInstances ec2:CreateTags ec2:DescribeSubnets""",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation": """eks:CreatePodIdentityAssociation
            eks:DescribePodIdentityAssociation eks:UpdatePodIdentityAssociation eks:DeletePodIdentityAssociation
            iam:PassRole iam:GetRole""",
        "aws:iam/role:Role": """iam:CreateRole iam:GetRole iam:UpdateRole iam:UpdateAssumeRolePolicy iam:DeleteRole
            iam:TagRole iam:UntagRole iam:ListRolePolicies iam:ListAttachedRolePolicies
            iam:ListInstanceProfilesForRole iam:GetRolePolicy""",
        "aws:iam/rolePolicy:RolePolicy": "iam:PutRolePolicy iam:GetRolePolicy iam:DeleteRolePolicy",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment": """iam:AttachRolePolicy iam:DetachRolePolicy
            iam:ListAttachedRolePolicies""",
        "aws:kms/key:Key": """kms:CreateKey kms:DescribeKey kms:GetKeyPolicy kms:PutKeyPolicy kms:EnableKeyRotation
            kms:GetKeyRotationStatus kms:ListResourceTags kms:TagResource kms:UntagResource
            kms:UpdateKeyDescription kms:DisableKeyRotation kms:ScheduleKeyDeletion""",
        "aws:s3/bucket:Bucket": f"""s3:CreateBucket s3:DeleteBucket s3:PutBucketTagging {_S3_READ}
            s3:ListBucketVersions s3:GetObject s3:PutObject s3:DeleteObject s3:DeleteObjectVersion
            s3:TagResource s3:UntagResource s3:ListTagsForResource""",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": """s3:PutLifecycleConfiguration
            s3:GetLifecycleConfiguration""",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls": """s3:PutBucketOwnershipControls
            s3:GetBucketOwnershipControls""",
        "aws:s3/bucketPolicy:BucketPolicy": "s3:PutBucketPolicy s3:GetBucketPolicy s3:DeleteBucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": """s3:PutBucketPublicAccessBlock
            s3:GetBucketPublicAccessBlock""",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": """
            s3:PutEncryptionConfiguration s3:GetEncryptionConfiguration""",
        "aws:s3/bucketVersioning:BucketVersioning": "s3:PutBucketVersioning s3:GetBucketVersioning",
    }.items()
}
"""Pulumi type -> actions that create, import, change and delete its resources.

The provider performs these actions, or AWS performs them with the caller's permissions.

Sources: https://docs.aws.amazon.com/service-authorization/latest/reference/reference.html, and the calls of
hashicorp/terraform-provider-aws 6.34.0 (f769145, internal/service) for each type in `simulation/facts/__main__.py`.
The table lacks calls for inputs that Trainyard does not set.
"""

PUSH_ACTIONS = (
    "ecr:GetAuthorizationToken",
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:CompleteLayerUpload",
    "ecr:PutImage",
    "ecr:ListImages",
    "ecr:BatchDeleteImage",
)
"""Actions to push images, and to delete them with their repository.

https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-push-iam.html
"""
READ_ACTIONS = (
    "sts:GetCallerIdentity",
    "kms:DescribeKey",
    "servicequotas:GetServiceQuota",
    "cloudwatch:GetMetricStatistics",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeImages",
)
"""Additional actions of the provider, of the checks in `make up` and in previews, and of `make verify-empty`."""

IAM_SERVICES = {
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
    "s3api": "s3",
}
"""Service in the AWS CLI -> service in IAM, if the names differ."""
IAM_ACTIONS = {
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "iam:ListOpenIdConnectProviders": "iam:ListOpenIDConnectProviders",
    "iam:ListOpenIdConnectProviderTags": "iam:ListOpenIDConnectProviderTags",
}
"""Action from the command's name -> action in IAM, if the names differ."""
READ_PREFIXES = ("Describe", "Get", "List", "BatchGet", "BatchCheck")


def iam_action(command: Sequence[str]) -> str:
    """Return the IAM action of an `aws` command: `aws ec2 describe-vpcs` is `ec2:DescribeVpcs`."""
    _, service, verb, *_ = command
    name = f"{IAM_SERVICES.get(service, service)}:{''.join(part.capitalize() for part in verb.split('-'))}"
    return IAM_ACTIONS.get(name, name)


def permissions(region: str, planned: Iterable[PlannedResource]) -> dict[str, Any]:
    """Return the IAM policy to preview, create, destroy and list resources in a region."""
    planned = list(planned)
    actions = {action for record in planned for action in ACTIONS.get(record.type, ())} | set(PUSH_ACTIONS)
    commands = [
        command
        for listing in (*LISTINGS, *DEPENDENT_LISTINGS)
        for command in (listing.command, listing.tags)
        if command
    ]
    read = {action for action in actions if action.partition(":")[2].startswith(READ_PREFIXES)}
    read |= {*map(iam_action, commands), *READ_ACTIONS}
    pass_role, create_linked_role = "iam:PassRole", "iam:CreateServiceLinkedRole"
    change = actions - read - {pass_role, create_linked_role}
    change_roles = {action for action in change if action.startswith("iam:")}
    # Route 53 has no regions. For an endpoint with private names, AWS calls Route 53 with the caller's permissions:
    # https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html, CreateVpcEndpoint
    change_names = {action for action in change if action.startswith("route53:")}
    roles = [f"arn:aws:iam::*:role/{record.name}-*" for record in planned if record.type == "aws:iam/role:Role"]
    in_region = {"StringEquals": {"aws:RequestedRegion": region}}
    to_services = {"StringEquals": {"iam:PassedToService": sorted(_trusted_services(planned))}}
    for_services = {"StringEquals": {"iam:AWSServiceName": ["eks.amazonaws.com", "eks-nodegroup.amazonaws.com"]}}
    return {
        "Version": "2012-10-17",
        "Statement": [
            _statement("Read", read),
            _statement("Change", change - change_names - change_roles, Condition=in_region),
            _statement("AssociateEndpointNames", change_names),
            _statement("ChangeStackRoles", change_roles, roles),
            _statement("PassStackRoles", [pass_role], roles, Condition=to_services),
            _statement("CreateServiceLinkedRoles", [create_linked_role], Condition=for_services),
        ],
    }


def _trusted_services(planned: Iterable[PlannedResource]) -> set[str]:
    trusts = [json.loads(record.inputs["assumeRolePolicy"]) for record in planned if record.type == "aws:iam/role:Role"]
    return {statement["Principal"]["Service"] for trust in trusts for statement in trust["Statement"]}


def _statement(sid: str, actions: Iterable[str], resources: Sequence[str] = ("*",), **more: Any) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": sorted(resources), **more}
