"""Kinds of AWS resources that a training stack uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.hardware.ec2 import EC2_MACHINES, Ec2Machine
from simulation.cloud.aws import rules
from simulation.cloud.kind import Autoname, Kind, Reference, value_at
from simulation.cloud.state import CloudState, Properties

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
NAT = "aws:ec2/natGateway:NatGateway"
TABLE = "aws:ec2/routeTable:RouteTable"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
ADDRESS = "aws:ec2/eip:Eip"
ROLE = "aws:iam/role:Role"
KEY = "aws:kms/key:Key"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
BUCKET = "aws:s3/bucket:Bucket"
REPOSITORY = "aws:ecr/repository:Repository"
ACCOUNT = "123456789012"
"""The simulated AWS account."""
_VPC_REFERENCE = Reference(path="vpcId", types=(VPC,))
_CLUSTER_REFERENCE = Reference(path="clusterName", types=(CLUSTER,))


def _endpoint(found: Properties) -> str:
    return f"https://{found['__settings'].get('endpoint', 'cluster.invalid')}"


def _certificate(found: Properties) -> Properties:
    return {"data": found["__settings"].get("certificate", "")}


def _groups(found: Properties) -> Properties:
    return {"clusterSecurityGroupId": f"sg-{found['number']}", "vpcId": ""}


_ACCESS: Mapping[str, Callable[[Properties], object]] = {
    "endpoint": _endpoint,
    "certificateAuthority": _certificate,
    "vpcConfig": _groups,
}
"""Outputs with the API server's address and certificate, from the rehearsal's settings."""


def machine_of(inputs: Properties, state: CloudState | None = None) -> Ec2Machine | None:
    """Return the instance type of a node group, from its inputs or its launch template; None if it is unknown."""
    name = value_at(inputs, "instanceTypes")
    name = name[0] if isinstance(name, list) and name else None
    if name is None and state is not None:
        template = state.find(str(value_at(inputs, "launchTemplate.id")), TEMPLATE)
        name = template.inputs.get("instanceType") if template else None
    return EC2_MACHINES.get(str(name))


def quota(inputs: Properties) -> Mapping[str, int]:
    """Return the vCPUs that the group needs at its maximum size, by quota.

    https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
    """
    machine = machine_of(inputs)
    if machine is None:
        return {}
    family = machine.name[0].upper()
    named = {"G": "G and VT", "P": "P"}.get(family, "Standard (A, C, D, H, I, M, R, T, Z)")
    market = "Spot" if inputs.get("capacityType") == "SPOT" else "On-Demand"
    most = int(value_at(inputs, "scalingConfig.maxSize") or 0)
    return {f"{inputs.get('region', '')}/{market} {named} vCPUs": machine.vcpus * most}


def _ec2(type_: str, prefix: str, **more: Any) -> Kind:
    resource = type_.rpartition(":")[2].lower()
    outputs = {"arn": f"arn:aws:ec2:{{region}}:{ACCOUNT}:{resource}/{{id}}"}
    outputs |= more.pop("outputs", {})
    id_ = more.pop("id", f"{prefix}-{{number}}")
    return Kind(type=type_, id=id_, outputs=outputs, **more)


_EC2 = (
    _ec2(
        VPC,
        "vpc",
        seconds=12,
    ),
    _ec2(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        "sg",
        id="sg-{vpcId}",
        adopts_existing=True,
        references=(Reference(path="vpcId", types=(VPC,), owner=True),),
    ),
    _ec2(
        SUBNET,
        "subnet",
        references=(_VPC_REFERENCE,),
        rules=(rules.subnet_in_vpc,),
        seconds=3,
    ),
    _ec2(GATEWAY, "igw", references=(_VPC_REFERENCE,), seconds=2, delete_seconds=15),
    _ec2(
        ADDRESS,
        "eipalloc",
        outputs={"allocationId": "{id}"},
        quota=lambda found: {f"{found.get('region', '')}/elastic-ips": 1},
    ),
    _ec2(
        NAT,
        "nat",
        references=(Reference(path="subnetId", types=(SUBNET,)), Reference(path="allocationId", types=(ADDRESS,))),
        seconds=110,
        delete_seconds=60,
    ),
    _ec2(
        TABLE,
        "rtb",
        references=(
            _VPC_REFERENCE,
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
        references=(_VPC_REFERENCE,),
    ),
    _ec2(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "vpce",
        references=(
            _VPC_REFERENCE,
            Reference(path="subnetIds", types=(SUBNET,)),
            Reference(path="securityGroupIds", types=(GROUP,)),
            Reference(path="routeTableIds", types=(TABLE,)),
        ),
        seconds=90,
        delete_seconds=60,
    ),
    _ec2(
        PLACEMENT,
        "pg",
        id="{name}",
        autoname=Autoname(limit=255),
    ),
    _ec2(
        TEMPLATE,
        "lt",
        autoname=Autoname(limit=125),
        outputs={"latestVersion": lambda _found: 1, "defaultVersion": lambda _found: 1},
        references=(Reference(path="placement.groupName", types=(PLACEMENT,)),),
    ),
)
"""Kinds of EC2 resources."""


_EKS = (
    Kind(
        type=CLUSTER,
        id="{name}",
        autoname=Autoname(limit=100),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:cluster/{{name}}", **_ACCESS},
        references=(
            Reference(path="roleArn", types=(ROLE,)),
            Reference(path="vpcConfig.subnetIds", types=(SUBNET,)),
            Reference(path="encryptionConfig.provider.keyArn", types=(KEY,)),
        ),
        rules=rules.CLUSTER_RULES,
        seconds=9 * 60,
        delete_seconds=5 * 60,
    ),
    Kind(
        type=NODE_GROUP,
        id="{clusterName}:{nodeGroupName}",
        autoname=Autoname(property="nodeGroupName", limit=63),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:nodegroup/{{id}}"},
        references=(
            _CLUSTER_REFERENCE,
            Reference(path="nodeRoleArn", types=(ROLE,)),
            Reference(path="subnetIds", types=(SUBNET,)),
            Reference(path="launchTemplate.id", types=(TEMPLATE,)),
        ),
        rules=rules.GROUP_RULES,
        seconds=3 * 60,
        delete_seconds=4 * 60,
        quota=quota,
    ),
    Kind(
        type="aws:eks/addon:Addon",
        id="{clusterName}:{addonName}",
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:addon/{{id}}"},
        references=(
            _CLUSTER_REFERENCE,
            Reference(path="podIdentityAssociations.roleArn", types=(ROLE,)),
        ),
        rules=(rules.addon_has_nodes,),
        seconds=30,
        delete_seconds=20,
    ),
    Kind(
        type="aws:eks/accessEntry:AccessEntry",
        id="{clusterName}:{principalArn}",
        references=(_CLUSTER_REFERENCE,),
    ),
    Kind(
        type="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        id="{clusterName}#{principalArn}#{policyArn}",
        references=(_CLUSTER_REFERENCE,),
    ),
    Kind(
        type="aws:eks/podIdentityAssociation:PodIdentityAssociation",
        id="a-{number}",
        references=(_CLUSTER_REFERENCE, Reference(path="roleArn", types=(ROLE,))),
        rules=(rules.pod_role,),
    ),
)

_OTHER = (
    Kind(
        type=ROLE,
        id="{name}",
        autoname=Autoname(limit=64),
        outputs={"arn": f"arn:aws:iam::{ACCOUNT}:role/{{name}}"},
        seconds=2,
    ),
    Kind(
        type="aws:iam/rolePolicy:RolePolicy",
        id="{role}:{name}",
        autoname=Autoname(limit=128),
        references=(Reference(path="role", types=(ROLE,)),),
    ),
    Kind(
        type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        id="{role}/{policyArn}",
        references=(Reference(path="role", types=(ROLE,)),),
    ),
    Kind(
        type=KEY,
        id="{number}",
        outputs={"arn": f"arn:aws:kms:{{region}}:{ACCOUNT}:key/{{id}}"},
        seconds=10,
    ),
    Kind(
        type="aws:cloudwatch/logGroup:LogGroup",
        id="{name}",
        autoname=Autoname(limit=512),
        outputs={"arn": f"arn:aws:logs:{{region}}:{ACCOUNT}:log-group:{{name}}"},
        seconds=1,
    ),
    Kind(
        type=BUCKET,
        id="{bucket}",
        autoname=Autoname(property="bucket"),
        outputs={"arn": "arn:aws:s3:::{bucket}"},
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
        },
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
