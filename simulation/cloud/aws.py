"""Simulated AWS: its kinds of resources, and documented rules about resources that use each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from infra.hardware.ec2 import EC2_MACHINES, Ec2Machine
from simulation.cloud.model import (
    Autoname,
    CloudState,
    Errors,
    Kind,
    Properties,
    Reference,
    parse_network,
    rule,
    value_at,
)

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
"""Number of the simulated AWS account."""
_VPC_REFERENCE = Reference("vpcId", VPC)
_CLUSTER_REFERENCE = Reference("clusterName", CLUSTER)
_ADDONS_ON_NODES = ("coredns", "aws-ebs-csi-driver", "eks-node-monitoring-agent", "metrics-server", "cert-manager")
"""Add-ons whose pods need nodes."""


@rule("https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html")
def subnet_in_vpc(inputs: Properties, state: CloudState) -> Errors:
    """Require a subnet within the VPC's range that does not overlap the VPC's other subnets."""
    new = parse_network(inputs.get("cidrBlock"))
    vpc = state.find(str(inputs.get("vpcId")), VPC)
    whole = parse_network(vpc.inputs.get("cidrBlock")) if vpc else None
    if new and whole and not new.subnet_of(whole):
        yield "cidrBlock", f"{new} is not in {whole} of the VPC"
    name = value_at(inputs, "tags.Name")
    for other in state.of_type(SUBNET):
        if name is not None and name == value_at(other.inputs, "tags.Name"):
            continue  # This is the same subnet before an update.
        existing = parse_network(other.inputs.get("cidrBlock"))
        if other.inputs.get("vpcId") == inputs.get("vpcId") and new and existing and new.overlaps(existing):
            yield "cidrBlock", f"{new} overlaps {existing} of {other.id}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html")
def version_goes_up_by_one(inputs: Properties, state: CloudState) -> Errors:
    """Require upgrades of an existing cluster by one minor version at a time.

    The node groups must follow before the next upgrade.
    """
    cluster = state.find(str(inputs.get("name")), CLUSTER)
    old, new = _minor(cluster.inputs.get("version")) if cluster else None, _minor(inputs.get("version"))
    if old is None or new is None or old == new:
        return
    if new != old + 1:
        yield "version", f"1.{new} after 1.{old}: upgrade one minor version at a time; downgrades are not possible"
    for group in state.of_type(NODE_GROUP):
        version = _minor(group.inputs.get("version"))
        if group.inputs.get("clusterName") == inputs.get("name") and version is not None and version < old:
            yield "version", f"node group {group.id} is at 1.{version}; update it to 1.{old} first"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html")
def zones_stay(inputs: Properties, state: CloudState) -> Errors:
    """Reject changes of the VPC or the zones of an existing cluster."""
    cluster = state.find(str(inputs.get("name")), CLUSTER)
    if cluster is None:
        return
    for key, noun in (("availabilityZone", "zones"), ("vpcId", "VPC")):
        old, new = (_subnet_values(each, key, state) for each in (cluster.inputs, inputs))
        if old and new and old != new:
            yield "vpcConfig.subnetIds", f"the cluster's {noun} cannot change from {sorted(old)} to {sorted(new)}"


def _subnet_values(inputs: Properties, key: str, state: CloudState) -> set[str]:
    subnets = (state.find(str(each), SUBNET) for each in value_at(inputs, "vpcConfig.subnetIds") or [])
    return {str(each.inputs.get(key)) for each in subnets if each is not None}


@rule("https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html")
def group_not_above_cluster(inputs: Properties, state: CloudState) -> Errors:
    """Reject nodes with a newer version than their control plane."""
    cluster = state.find(str(inputs.get("clusterName")), CLUSTER)
    nodes, control_plane = _minor(inputs.get("version")), _minor(cluster.inputs.get("version")) if cluster else None
    if nodes is not None and control_plane is not None and nodes > control_plane:
        yield "version", f"1.{nodes} is above the cluster's version, 1.{control_plane}"


def _minor(version: object) -> int | None:
    match = re.fullmatch(r"1\.(\d+)", version) if isinstance(version, str) else None
    return int(match[1]) if match else None


@rule("https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html")
def block_is_in_the_template(inputs: Properties, state: CloudState) -> Errors:
    """Require a capacity block's market type and instance type in the launch template, and a single subnet."""
    template = state.find(str(value_at(inputs, "launchTemplate.id")), TEMPLATE)
    if inputs.get("capacityType") != "CAPACITY_BLOCK" or template is None:
        return
    if value_at(template.inputs, "instanceMarketOptions.marketType") != "capacity-block":
        yield "launchTemplate", "must have the market type capacity-block"
    if not template.inputs.get("instanceType"):
        yield "launchTemplate", "must have the instance type of the capacity block"
    if len(inputs.get("subnetIds") or []) != 1:
        yield "subnetIds", "must be one subnet, in the capacity block's zone"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html")
def subnets_in_two_zones(inputs: Properties, state: CloudState) -> Errors:
    """Require a cluster's subnets to be in at least two zones."""
    found = [state.find(each, SUBNET) for each in value_at(inputs, "vpcConfig.subnetIds") or []]
    zones = {each.inputs.get("availabilityZone") for each in found if each}
    if len(zones) < 2:
        yield "vpcConfig.subnetIds", "must be in at least two zones"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html")
def placement_group_in_one_zone(inputs: Properties, state: CloudState) -> Errors:
    """Require a single subnet if the launch template has a cluster placement group."""
    template = state.find(str(value_at(inputs, "launchTemplate.id")), TEMPLATE)
    if template and value_at(template.inputs, "placement.groupName") and len(inputs.get("subnetIds") or []) > 1:
        yield "subnetIds", "must be one subnet, because a cluster placement group is in one zone"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html")
def node_role(inputs: Properties, state: CloudState) -> Errors:
    """Require a node role that EC2 may assume."""
    yield from _trust_errors(inputs.get("nodeRoleArn"), "nodeRoleArn", "ec2.amazonaws.com", state)


@rule("https://docs.aws.amazon.com/eks/latest/userguide/cluster-iam-role.html")
def cluster_role(inputs: Properties, state: CloudState) -> Errors:
    """Require a cluster role that EKS may assume."""
    yield from _trust_errors(inputs.get("roleArn"), "roleArn", "eks.amazonaws.com", state)


@rule("https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html")
def pod_role(inputs: Properties, state: CloudState) -> Errors:
    """Require a pod role that EKS Pod Identity may assume."""
    yield from _trust_errors(inputs.get("roleArn"), "roleArn", "pods.eks.amazonaws.com", state)


def _trust_errors(arn: object, where: str, service: str, state: CloudState) -> Errors:
    role = state.find(str(arn), ROLE)
    policy = role.inputs.get("assumeRolePolicy") if role else None
    # The quotation mark distinguishes eks.amazonaws.com from pods.eks.amazonaws.com.
    if isinstance(policy, str) and f'"{service}' not in policy:
        yield where, f"{service} may not assume {arn}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/eks-add-ons.html")
def addon_has_nodes(inputs: Properties, state: CloudState) -> Errors:
    """Require a node group for add-ons whose pods need nodes.

    Without nodes, such an add-on stays degraded.
    """
    groups = [each for each in state.of_type(NODE_GROUP) if each.inputs["clusterName"] == inputs.get("clusterName")]
    if inputs.get("addonName") in _ADDONS_ON_NODES and not groups:
        yield "addonName", f"{inputs['addonName']} does not become active: the cluster has no nodes"


def machine_of(inputs: Properties, state: CloudState | None = None) -> Ec2Machine | None:
    """Return the instance type of a node group, from its inputs or its launch template, or None if unknown."""
    name = value_at(inputs, "instanceTypes")
    name = name[0] if isinstance(name, list) and name else None
    if name is None and state is not None:
        template = state.find(str(value_at(inputs, "launchTemplate.id")), TEMPLATE)
        name = template.inputs.get("instanceType") if template else None
    return EC2_MACHINES.get(str(name))


def quota(inputs: Properties) -> Mapping[str, int]:
    """Return quota -> vCPUs that the group needs at its maximum size.

    https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
    """
    machine = machine_of(inputs)
    if machine is None:
        return {}
    family = machine.name[0].upper()
    named = {"G": "G and VT", "P": "P"}.get(family, "Standard (A, C, D, H, I, M, R, T, Z)")
    market = "Spot" if inputs.get("capacityType") == "SPOT" else "On-Demand"
    max_nodes = int(value_at(inputs, "scalingConfig.maxSize") or 0)
    return {f"{inputs.get('region', '')}/{market} {named} vCPUs": machine.vcpus * max_nodes}


def _ec2(type_: str, prefix: str, **more: Any) -> Kind:
    resource = type_.rpartition(":")[2].lower()
    outputs = {"arn": f"arn:aws:ec2:{{region}}:{ACCOUNT}:{resource}/{{id}}"}
    outputs |= more.pop("outputs", {})
    id_ = more.pop("id", f"{prefix}-{{number}}")
    return Kind(type=type_, id=id_, outputs=outputs, **more)


_EC2 = (
    _ec2(VPC, "vpc", seconds=12),
    _ec2(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        "sg",
        id="sg-{vpcId}",
        adopts_existing=True,
        references=(Reference("vpcId", VPC, is_owner=True),),
    ),
    _ec2(SUBNET, "subnet", references=(_VPC_REFERENCE,), rules=(subnet_in_vpc,), seconds=3),
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
        references=(Reference("subnetId", SUBNET), Reference("allocationId", ADDRESS)),
        seconds=110,
        delete_seconds=60,
    ),
    _ec2(
        TABLE,
        "rtb",
        references=(_VPC_REFERENCE, Reference("routes.gatewayId", GATEWAY), Reference("routes.natGatewayId", NAT)),
    ),
    _ec2(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "rtbassoc",
        references=(Reference("routeTableId", TABLE), Reference("subnetId", SUBNET)),
    ),
    _ec2(GROUP, "sg", autoname=Autoname(limit=255), references=(_VPC_REFERENCE,)),
    _ec2(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "vpce",
        references=(
            _VPC_REFERENCE,
            Reference("subnetIds", SUBNET),
            Reference("securityGroupIds", GROUP),
            Reference("routeTableIds", TABLE),
        ),
        seconds=90,
        delete_seconds=60,
    ),
    _ec2(PLACEMENT, "pg", id="{name}", autoname=Autoname(limit=255)),
    _ec2(
        TEMPLATE,
        "lt",
        autoname=Autoname(limit=125),
        outputs={"latestVersion": lambda _found: 1, "defaultVersion": lambda _found: 1},
        references=(Reference("placement.groupName", PLACEMENT),),
    ),
)
"""Kinds of EC2 resources."""


_EKS = (
    Kind(
        type=CLUSTER,
        id="{name}",
        autoname=Autoname(limit=100),
        outputs={
            "arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:cluster/{{name}}",
            "endpoint": lambda found: f"https://{found['__settings'].get('endpoint', 'cluster.invalid')}",
            "certificateAuthority": lambda found: {"data": found["__settings"].get("certificate", "")},
            "vpcConfig": lambda found: {"clusterSecurityGroupId": f"sg-{found['number']}", "vpcId": ""},
        },
        references=(
            Reference("roleArn", ROLE),
            Reference("vpcConfig.subnetIds", SUBNET),
            Reference("encryptionConfig.provider.keyArn", KEY),
        ),
        rules=(subnets_in_two_zones, version_goes_up_by_one, zones_stay, cluster_role),
        seconds=9 * 60,
        delete_seconds=5 * 60,
    ),
    Kind(
        type=NODE_GROUP,
        id="{clusterName}:{nodeGroupName}",
        autoname=Autoname(property="nodeGroupName", limit=63),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:nodegroup/{{id}}", "status": "ACTIVE"},
        failed_status="CREATE_FAILED",
        references=(
            _CLUSTER_REFERENCE,
            Reference("nodeRoleArn", ROLE),
            Reference("subnetIds", SUBNET),
            Reference("launchTemplate.id", TEMPLATE),
        ),
        rules=(placement_group_in_one_zone, node_role, group_not_above_cluster, block_is_in_the_template),
        seconds=3 * 60,
        delete_seconds=4 * 60,
        quota=quota,
    ),
    Kind(
        type="aws:eks/addon:Addon",
        id="{clusterName}:{addonName}",
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:addon/{{id}}"},
        references=(_CLUSTER_REFERENCE, Reference("podIdentityAssociations.roleArn", ROLE)),
        rules=(addon_has_nodes,),
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
        references=(_CLUSTER_REFERENCE, Reference("roleArn", ROLE)),
        rules=(pod_role,),
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
        references=(Reference("role", ROLE),),
    ),
    Kind(
        type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        id="{role}/{policyArn}",
        references=(Reference("role", ROLE),),
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
            references=(Reference("bucket", BUCKET),),
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
        references=(Reference("repository", REPOSITORY),),
        seconds=1,
    ),
)

KINDS: Mapping[str, Kind] = {kind.type: kind for kind in (*_EC2, *_EKS, *_OTHER)}
"""Type token -> kind of AWS resource."""
