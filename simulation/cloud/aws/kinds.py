"""Kinds of AWS resources that a training stack uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulation.cloud.aws import ACCOUNT, cluster_rules, network_rules, other_rules
from simulation.cloud.kind import Autoname, Kind, Reference

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
NAT = "aws:ec2/natGateway:NatGateway"
TABLE = "aws:ec2/routeTable:RouteTable"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
ADDRESS = "aws:ec2/eip:Eip"
_IN_VPC = Reference(path="vpcId", types=(VPC,))


def _ec2(type_: str, prefix: str, **more: Any) -> Kind:
    resource = type_.rpartition(":")[2].lower()
    outputs = {"arn": f"arn:aws:ec2:{{region}}:{ACCOUNT}:{resource}/{{id}}", "ownerId": ACCOUNT}
    outputs |= more.pop("outputs", {})
    id_ = more.pop("id", f"{prefix}-{{number}}")
    return Kind(type=type_, id=id_, outputs=outputs, **more)


_EC2 = (
    _ec2(
        VPC,
        "vpc",
        outputs={"defaultSecurityGroupId": "sg-{number}", "mainRouteTableId": "rtb-{number}"},
        rules=(network_rules.vpc_size,),
        seconds=12,
    ),
    _ec2(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        "sg",
        id="sg-{vpcId}",
        takes_over=True,
        references=(Reference(path="vpcId", types=(VPC,), owner=True),),
    ),
    _ec2(
        SUBNET,
        "subnet",
        references=(_IN_VPC,),
        rules=network_rules.SUBNET_RULES,
        seconds=3,
    ),
    _ec2(GATEWAY, "igw", references=(_IN_VPC,), seconds=2, delete_seconds=15),
    _ec2(
        ADDRESS,
        "eipalloc",
        outputs={"allocationId": "{id}", "publicIp": "203.0.113.10"},
        quota=lambda found: {f"{found.get('region', '')}/elastic-ips": 1},
    ),
    _ec2(
        NAT,
        "nat",
        references=(Reference(path="subnetId", types=(SUBNET,)), Reference(path="allocationId", types=(ADDRESS,))),
        outputs={"publicIp": "203.0.113.10"},
        seconds=110,
        delete_seconds=60,
    ),
    _ec2(
        TABLE,
        "rtb",
        references=(
            _IN_VPC,
            Reference(path="routes.gatewayId", types=(GATEWAY,)),
            Reference(path="routes.natGatewayId", types=(NAT,)),
        ),
    ),
    _ec2(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "rtbassoc",
        references=(Reference(path="routeTableId", types=(TABLE,)), Reference(path="subnetId", types=(SUBNET,))),
    ),
    _ec2(
        GROUP,
        "sg",
        autoname=Autoname(limit=255),
        references=(_IN_VPC,),
    ),
    _ec2(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "vpce",
        references=(
            _IN_VPC,
            Reference(path="subnetIds", types=(SUBNET,)),
            Reference(path="securityGroupIds", types=(GROUP,)),
            Reference(path="routeTableIds", types=(TABLE,)),
        ),
        rules=(network_rules.endpoint_service,),
        seconds=90,
        delete_seconds=60,
    ),
    _ec2(
        PLACEMENT,
        "pg",
        id="{name}",
        autoname=Autoname(limit=255),
        rules=(network_rules.placement_strategy,),
    ),
    _ec2(
        TEMPLATE,
        "lt",
        autoname=Autoname(limit=125),
        outputs={"latestVersion": lambda _found: 1, "defaultVersion": lambda _found: 1},
        references=(Reference(path="placement.groupName", types=(PLACEMENT,)),),
        rules=network_rules.TEMPLATE_RULES,
    ),
)
"""Kinds of EC2 resources."""


ROLE = "aws:iam/role:Role"
POLICY = "aws:iam/policy:Policy"
KEY = "aws:kms/key:Key"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
BUCKET = "aws:s3/bucket:Bucket"
REPOSITORY = "aws:ecr/repository:Repository"


_IN_CLUSTER = Reference(path="clusterName", types=(CLUSTER,), owner=False)


def _eks(type_: str, id_: str, **more: Any) -> Kind:
    return Kind(type=type_, id=id_, **more)


_EKS = (
    _eks(
        CLUSTER,
        "{name}",
        autoname=Autoname(limit=100),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:cluster/{{name}}", **cluster_rules.ACCESS},
        references=(
            Reference(path="roleArn", types=(ROLE,)),
            Reference(path="vpcConfig.subnetIds", types=(SUBNET,)),
            Reference(path="encryptionConfig.provider.keyArn", types=(KEY,)),
        ),
        rules=cluster_rules.CLUSTER_RULES,
        seconds=9 * 60,
        delete_seconds=5 * 60,
    ),
    _eks(
        NODE_GROUP,
        "{clusterName}:{nodeGroupName}",
        autoname=Autoname(property="nodeGroupName", limit=63),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:nodegroup/{{id}}", "status": "ACTIVE"},
        references=(
            _IN_CLUSTER,
            Reference(path="nodeRoleArn", types=(ROLE,)),
            Reference(path="subnetIds", types=(SUBNET,)),
            Reference(path="launchTemplate.id", types=(TEMPLATE,)),
        ),
        rules=cluster_rules.GROUP_RULES,
        seconds=3 * 60,
        delete_seconds=4 * 60,
        quota=cluster_rules.quota,
    ),
    _eks(
        "aws:eks/addon:Addon",
        "{clusterName}:{addonName}",
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:addon/{{id}}"},
        references=(
            _IN_CLUSTER,
            Reference(path="podIdentityAssociations.roleArn", types=(ROLE,)),
        ),
        rules=(cluster_rules.addon_exists, cluster_rules.addon_has_nodes),
        seconds=30,
        delete_seconds=20,
    ),
    _eks(
        "aws:eks/accessEntry:AccessEntry",
        "{clusterName}:{principalArn}",
        references=(_IN_CLUSTER,),
        rules=(cluster_rules.access_entry,),
    ),
    _eks(
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        "{clusterName}#{principalArn}#{policyArn}",
        references=(_IN_CLUSTER,),
    ),
    _eks(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "a-{number}",
        outputs={"associationId": "{id}"},
        references=(_IN_CLUSTER, Reference(path="roleArn", types=(ROLE,))),
        rules=(cluster_rules.pod_role,),
    ),
)

_OTHER = (
    Kind(
        type=ROLE,
        id="{name}",
        autoname=Autoname(limit=64),
        outputs={"arn": f"arn:aws:iam::{ACCOUNT}:role/{{name}}", "uniqueId": "AROA{number}"},
        rules=(other_rules.role_name, other_rules.trust_policy),
        seconds=2,
    ),
    Kind(
        type=POLICY,
        id=f"arn:aws:iam::{ACCOUNT}:policy/{{name}}",
        autoname=Autoname(limit=128),
        outputs={"arn": "{id}"},
        replaces=frozenset({"name", "path", "description"}),
        rules=(other_rules.policy_document,),
    ),
    Kind(
        type="aws:iam/rolePolicy:RolePolicy",
        id="{role}:{name}",
        autoname=Autoname(limit=128),
        references=(Reference(path="role", types=(ROLE,)),),
        rules=(other_rules.policy_document,),
    ),
    Kind(
        type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        id="{role}/{policyArn}",
        references=(
            Reference(path="role", types=(ROLE,)),
            Reference(path="policyArn", types=(POLICY,), prefix=f"arn:aws:iam::{ACCOUNT}:"),
        ),
        rules=(other_rules.managed_policy,),
    ),
    Kind(
        type=KEY,
        id="{number}",
        outputs={"arn": f"arn:aws:kms:{{region}}:{ACCOUNT}:key/{{id}}", "keyId": "{id}"},
        rules=(other_rules.key_deletion,),
        seconds=10,
    ),
    Kind(
        type="aws:kms/alias:Alias",
        id="{name}",
        autoname=Autoname(limit=256, prefix="alias/"),
        replaces=frozenset({"name"}),
        references=(Reference(path="targetKeyId", types=(KEY,)),),
    ),
    Kind(
        type="aws:cloudwatch/logGroup:LogGroup",
        id="{name}",
        autoname=Autoname(limit=512),
        outputs={"arn": f"arn:aws:logs:{{region}}:{ACCOUNT}:log-group:{{name}}"},
        rules=(other_rules.log_retention,),
        seconds=1,
    ),
    Kind(
        type=BUCKET,
        id="{bucket}",
        autoname=Autoname(property="bucket"),
        outputs={
            "arn": "arn:aws:s3:::{bucket}",
            "bucketDomainName": "{bucket}.s3.amazonaws.com",
            "bucketRegionalDomainName": "{bucket}.s3.{region}.amazonaws.com",
        },
        rules=(other_rules.s3_bucket_name,),
        seconds=2,
    ),
    *(
        Kind(
            type=f"aws:s3/{name[0].lower()}{name[1:]}:{name}",
            id="{bucket}",
            references=(Reference(path="bucket", types=(BUCKET,)),),
            seconds=1,
        )
        for name in (
            "BucketPublicAccessBlock",
            "BucketOwnershipControls",
            "BucketServerSideEncryptionConfiguration",
            "BucketPolicy",
            "BucketVersioning",
            "BucketLifecycleConfiguration",
        )
    ),
    Kind(
        type=REPOSITORY,
        id="{name}",
        autoname=Autoname(limit=256),
        outputs={
            "arn": f"arn:aws:ecr:{{region}}:{ACCOUNT}:repository/{{name}}",
            "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{{region}}.amazonaws.com/{{name}}",
            "registryId": ACCOUNT,
        },
        rules=(other_rules.repository_name,),
        seconds=2,
    ),
    Kind(
        type="aws:ecr/lifecyclePolicy:LifecyclePolicy",
        id="{repository}",
        references=(Reference(path="repository", types=(REPOSITORY,)),),
        seconds=1,
    ),
)

KINDS: Mapping[str, Kind] = {kind.type: kind for kind in (*_EC2, *_EKS, *_OTHER)}
"""Kinds of AWS resources, by type token."""
