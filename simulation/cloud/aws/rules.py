"""Rules of AWS over a resource and those that exist: versions, zones, subnets, roles and capacity blocks."""

from __future__ import annotations

import re

from simulation.cloud.kind import Errors, parse_network, rule, value_at
from simulation.cloud.state import CloudState, Properties

_VPC = "aws:ec2/vpc:Vpc"
_SUBNET = "aws:ec2/subnet:Subnet"
_ROLE = "aws:iam/role:Role"
_CLUSTER = "aws:eks/cluster:Cluster"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
_ADDONS_ON_NODES = ("coredns", "aws-ebs-csi-driver", "eks-node-monitoring-agent", "metrics-server", "cert-manager")
"""Add-ons whose pods need nodes."""


@rule("https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html")
def subnet_in_vpc(inputs: Properties, state: CloudState) -> Errors:
    """Require a subnet within the VPC's range that does not overlap the VPC's other subnets."""
    new = parse_network(inputs.get("cidrBlock"))
    vpc = state.find(str(inputs.get("vpcId")), _VPC)
    whole = parse_network(vpc.inputs.get("cidrBlock")) if vpc else None
    if new and whole and not new.subnet_of(whole):
        yield "cidrBlock", f"{new} is not in {whole} of the VPC"
    name = value_at(inputs, "tags.Name")
    for other in state.of_type(_SUBNET):
        if name is not None and name == value_at(other.inputs, "tags.Name"):
            continue  # This subnet, before an update.
        existing = parse_network(other.inputs.get("cidrBlock"))
        if other.inputs.get("vpcId") == inputs.get("vpcId") and new and existing and new.overlaps(existing):
            yield "cidrBlock", f"{new} overlaps {existing} of {other.id}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html")
def version_goes_up_by_one(inputs: Properties, state: CloudState) -> Errors:
    """Require upgrades of an existing cluster by one minor version at a time.

    Its node groups must follow before the next upgrade.
    """
    cluster = state.find(str(inputs.get("name")), _CLUSTER)
    old, new = _minor(cluster.inputs.get("version")) if cluster else None, _minor(inputs.get("version"))
    if old is None or new is None or old == new:
        return
    if new != old + 1:
        yield "version", f"1.{new} after 1.{old}: upgrade one minor version at a time; downgrades are not possible"
    for group in state.of_type(_NODE_GROUP):
        version = _minor(group.inputs.get("version"))
        if group.inputs.get("clusterName") == inputs.get("name") and version is not None and version < old:
            yield "version", f"node group {group.id} is at 1.{version}; update it to 1.{old} first"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html")
def zones_stay(inputs: Properties, state: CloudState) -> Errors:
    """Reject changes of the VPC or the zones of an existing cluster."""
    cluster = state.find(str(inputs.get("name")), _CLUSTER)
    if cluster is None:
        return
    for key, noun in (("availabilityZone", "zones"), ("vpcId", "VPC")):
        old, new = (_of_subnets(each, key, state) for each in (cluster.inputs, inputs))
        if old and new and old != new:
            yield "vpcConfig.subnetIds", f"the cluster's {noun} cannot change from {sorted(old)} to {sorted(new)}"


def _of_subnets(inputs: Properties, key: str, state: CloudState) -> set[str]:
    subnets = (state.find(str(each), _SUBNET) for each in value_at(inputs, "vpcConfig.subnetIds") or [])
    return {str(each.inputs.get(key)) for each in subnets if each is not None}


@rule("https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html")
def group_not_above_cluster(inputs: Properties, state: CloudState) -> Errors:
    """Reject nodes with a newer version than their control plane."""
    cluster = state.find(str(inputs.get("clusterName")), _CLUSTER)
    nodes, control_plane = _minor(inputs.get("version")), _minor(cluster.inputs.get("version")) if cluster else None
    if nodes is not None and control_plane is not None and nodes > control_plane:
        yield "version", f"1.{nodes} is above the cluster's version, 1.{control_plane}"


def _minor(version: object) -> int | None:
    match = re.fullmatch(r"1\.(\d+)", version) if isinstance(version, str) else None
    return int(match[1]) if match else None


@rule("https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html")
def block_is_in_the_template(inputs: Properties, state: CloudState) -> Errors:
    """Require a capacity block's market type and instance type in the launch template, and a single subnet."""
    template = state.find(str(value_at(inputs, "launchTemplate.id")), _TEMPLATE)
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
    """Require subnets in at least two zones."""
    found = [state.find(each, _SUBNET) for each in value_at(inputs, "vpcConfig.subnetIds") or []]
    zones = {each.inputs.get("availabilityZone") for each in found if each}
    if len(zones) < 2:
        yield "vpcConfig.subnetIds", "must be in at least two zones"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html")
def placement_group_in_one_zone(inputs: Properties, state: CloudState) -> Errors:
    """Require a single subnet if the launch template has a cluster placement group."""
    template = state.find(str(value_at(inputs, "launchTemplate.id")), _TEMPLATE)
    if template and value_at(template.inputs, "placement.groupName") and len(inputs.get("subnetIds") or []) > 1:
        yield "subnetIds", "must be one subnet, because a cluster placement group is in one zone"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html")
def node_role(inputs: Properties, state: CloudState) -> Errors:
    """Require a node role that EC2 may assume."""
    yield from _trusted(inputs.get("nodeRoleArn"), "nodeRoleArn", "ec2.amazonaws.com", state)


@rule("https://docs.aws.amazon.com/eks/latest/userguide/cluster-iam-role.html")
def cluster_role(inputs: Properties, state: CloudState) -> Errors:
    """Require a cluster role that EKS may assume."""
    yield from _trusted(inputs.get("roleArn"), "roleArn", "eks.amazonaws.com", state)


@rule("https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html")
def pod_role(inputs: Properties, state: CloudState) -> Errors:
    """Require a pod role that EKS Pod Identity may assume."""
    yield from _trusted(inputs.get("roleArn"), "roleArn", "pods.eks.amazonaws.com", state)


def _trusted(arn: object, where: str, service: str, state: CloudState) -> Errors:
    role = state.find(str(arn), _ROLE)
    policy = role.inputs.get("assumeRolePolicy") if role else None
    if isinstance(policy, str) and service not in policy:
        yield where, f"{service} may not assume {arn}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/eks-add-ons.html")
def addon_has_nodes(inputs: Properties, state: CloudState) -> Errors:
    """Require a node group for add-ons whose pods need nodes.

    Without nodes, such an add-on stays degraded.
    """
    groups = [each for each in state.of_type(_NODE_GROUP) if each.inputs["clusterName"] == inputs.get("clusterName")]
    if inputs.get("addonName") in _ADDONS_ON_NODES and not groups:
        yield "addonName", f"{inputs['addonName']} never becomes active: the cluster has no nodes yet"


CLUSTER_RULES = (subnets_in_two_zones, version_goes_up_by_one, zones_stay, cluster_role)
GROUP_RULES = (placement_group_in_one_zone, node_role, group_not_above_cluster, block_is_in_the_template)
