"""Rules of EKS clusters, node groups, add-ons and access, and the quotas that a node group uses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from infra.hardware.ec2 import EC2_MACHINES, Ec2Machine
from simulation.cloud.aws import ACCOUNT
from simulation.cloud.gcp.network_rules import parsed
from simulation.cloud.kind import Found, admission, at, rule
from simulation.cloud.state import CloudState, Properties

_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
_GROUP_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,62}")
_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/\S+")
_SUBNET = "aws:ec2/subnet:Subnet"
_ROLE = "aws:iam/role:Role"
CLUSTER = "aws:eks/cluster:Cluster"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADDONS = frozenset(
    [
        "adot",
        "amazon-cloudwatch-observability",
        "aws-ebs-csi-driver",
        "aws-efs-csi-driver",
        "aws-fsx-csi-driver",
        "aws-mountpoint-s3-csi-driver",
        "cert-manager",
        "coredns",
        "eks-node-monitoring-agent",
        "eks-pod-identity-agent",
        "external-dns",
        "kube-proxy",
        "kube-state-metrics",
        "metrics-server",
        "prometheus-node-exporter",
        "snapshot-controller",
        "vpc-cni",
    ]
)
"""Add-ons of AWS: https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html"""
_ON_NODES = ("coredns", "aws-ebs-csi-driver", "eks-node-monitoring-agent", "metrics-server", "cert-manager")
LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _endpoint(found: Properties) -> str:
    return f"https://{found['__settings'].get('endpoint', 'cluster.invalid')}"


def _certificate(found: Properties) -> Properties:
    return {"data": found["__settings"].get("certificate", "")}


def _groups(found: Properties) -> Properties:
    return {"clusterSecurityGroupId": f"sg-{found['number']}", "vpcId": ""}


ACCESS: Mapping[str, Callable[[Properties], object]] = {
    "endpoint": _endpoint,
    "certificateAuthority": _certificate,
    "vpcConfig": _groups,
    "status": lambda _found: "ACTIVE",
    "platformVersion": lambda _found: "eks.1",
}
"""Outputs with the API server's address and certificate, from the rehearsal's settings."""


def machine_of(inputs: Properties, state: CloudState | None = None) -> Ec2Machine | None:
    """Return the instance type of a node group, from its inputs or its launch template; None if it is unknown."""
    name = at(inputs, "instanceTypes")
    name = name[0] if isinstance(name, list) and name else None
    if name is None and state is not None:
        template = state.find(str(at(inputs, "launchTemplate.id")), _TEMPLATE)
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
    most = int(at(inputs, "scalingConfig.maxSize") or 0)
    return {f"{inputs.get('region', '')}/{market} {named} vCPUs": machine.vcpus * most}


@rule("https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html")
def eks_cluster_name(inputs: Properties) -> Found:
    """Require a valid name of 1 to 100 characters."""
    name = inputs.get("name")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        yield "name", f"{name!r} must be 1 to 100 letters, digits, '-' and '_', first a letter or digit"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/control-plane-logs.html")
def log_types(inputs: Properties) -> Found:
    """Require log types that exist."""
    for name in inputs.get("enabledClusterLogTypes") or []:
        if name not in LOGS:
            yield "enabledClusterLogTypes", f"{name!r} must be one of {', '.join(LOGS)}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html")
def has_an_endpoint(inputs: Properties) -> Found:
    """Require a public or a private endpoint, and IPv4 networks as public ranges."""
    config = inputs.get("vpcConfig") or {}
    if config.get("endpointPublicAccess") is False and not config.get("endpointPrivateAccess"):
        yield "vpcConfig.endpointPrivateAccess", "must be true without a public endpoint"
    for text in config.get("publicAccessCidrs") or []:
        if isinstance(text, str) and parsed(text) is None:
            yield "vpcConfig.publicAccessCidrs", f"{text!r} is not an IPv4 network"


@admission("https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html")
def version_goes_up_by_one(inputs: Properties, state: CloudState) -> Found:
    """Require upgrades of an existing cluster by one minor version at a time.

    Its node groups must follow before the next upgrade.
    """
    cluster = state.find(str(inputs.get("name")), CLUSTER)
    was, now = _minor(cluster.inputs.get("version")) if cluster else None, _minor(inputs.get("version"))
    if was is None or now is None or was == now:
        return
    if now != was + 1:
        yield "version", f"1.{now} after 1.{was}: upgrade one minor version at a time; downgrades are not possible"
    for group in state.of_type(_NODE_GROUP):
        version = _minor(group.inputs.get("version"))
        if group.inputs.get("clusterName") == inputs.get("name") and version is not None and version < was:
            yield "version", f"node group {group.id} is at 1.{version}; update it to 1.{was} first"


@admission("https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html")
def zones_stay(inputs: Properties, state: CloudState) -> Found:
    """Reject changes of the VPC or the zones of an existing cluster."""
    cluster = state.find(str(inputs.get("name")), CLUSTER)
    if cluster is None:
        return
    for key, what in (("availabilityZone", "zones"), ("vpcId", "VPC")):
        was, now = (_of_subnets(each, key, state) for each in (cluster.inputs, inputs))
        if was and now and was != now:
            yield "vpcConfig.subnetIds", f"the cluster's {what} cannot change from {sorted(was)} to {sorted(now)}"


def _of_subnets(inputs: Properties, key: str, state: CloudState) -> set[str]:
    subnets = (state.find(str(each), _SUBNET) for each in at(inputs, "vpcConfig.subnetIds") or [])
    return {str(each.inputs.get(key)) for each in subnets if each is not None}


@admission("https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html")
def group_not_above_cluster(inputs: Properties, state: CloudState) -> Found:
    """Reject nodes with a newer version than their control plane."""
    cluster = state.find(str(inputs.get("clusterName")), CLUSTER)
    nodes, plane = _minor(inputs.get("version")), _minor(cluster.inputs.get("version")) if cluster else None
    if nodes is not None and plane is not None and nodes > plane:
        yield "version", f"1.{nodes} is above the cluster's version, 1.{plane}"


def _minor(version: object) -> int | None:
    match = re.fullmatch(r"1\.(\d+)", version) if isinstance(version, str) else None
    return int(match[1]) if match else None


@admission("https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html")
def block_is_in_the_template(inputs: Properties, state: CloudState) -> Found:
    """Require a capacity block's market type and instance type in the launch template, and a single subnet."""
    template = state.find(str(at(inputs, "launchTemplate.id")), _TEMPLATE)
    if inputs.get("capacityType") != "CAPACITY_BLOCK" or template is None:
        return
    if at(template.inputs, "instanceMarketOptions.marketType") != "capacity-block":
        yield "launchTemplate", "must have the market type capacity-block"
    if not template.inputs.get("instanceType"):
        yield "launchTemplate", "must have the instance type of the capacity block"
    if len(inputs.get("subnetIds") or []) != 1:
        yield "subnetIds", "must be one subnet, in the capacity block's zone"


@admission("https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html")
def subnets_in_two_zones(inputs: Properties, state: CloudState) -> Found:
    """Require subnets in at least two zones."""
    found = [state.find(each, _SUBNET) for each in at(inputs, "vpcConfig.subnetIds") or []]
    zones = {each.inputs.get("availabilityZone") for each in found if each}
    if len(zones) < 2:
        yield "vpcConfig.subnetIds", "must be in at least two zones"


@rule("https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html")
def node_group_name(inputs: Properties) -> Found:
    """Require a valid name of 1 to 63 characters."""
    name = inputs.get("nodeGroupName")
    if isinstance(name, str) and not _GROUP_NAME.fullmatch(name):
        yield "nodeGroupName", f"{name!r} must be 1 to 63 letters, digits, '-' and '_', first a letter or digit"


@rule("https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupScalingConfig.html")
def scaling(inputs: Properties) -> Found:
    """Require 0 <= minSize <= desiredSize <= maxSize, and maxSize >= 1."""
    found = inputs.get("scalingConfig") or {}
    sizes = [found.get(key) for key in ("minSize", "desiredSize", "maxSize")]
    known = [each for each in sizes if isinstance(each, int)]
    if len(known) == len(sizes) and not 0 <= known[0] <= known[1] <= known[2]:
        yield "scalingConfig", f"minSize {sizes[0]}, desiredSize {sizes[1]} and maxSize {sizes[2]} must ascend"
    if sizes[2] == 0:
        yield "scalingConfig.maxSize", "must be at least 1"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html")
def image_has_drivers(inputs: Properties) -> Found:
    """Require an image with NVIDIA's driver for GPU instances, and only for them."""
    machine, image = machine_of(inputs), inputs.get("amiType")
    if machine is None or not isinstance(image, str) or image == "CUSTOM":
        return
    if machine.gpus and "NVIDIA" not in image:
        yield "amiType", f"{image} has no GPU driver for {machine.name}: write AL2023_x86_64_NVIDIA"
    if not machine.gpus and "NVIDIA" in image:
        yield "amiType", f"{machine.name} has no GPU for {image}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html")
def disk_is_in_the_template(inputs: Properties) -> Found:
    """Reject a disk size together with a launch template, which must contain the size."""
    if inputs.get("launchTemplate") and inputs.get("diskSize"):
        yield "diskSize", "cannot be set together with launchTemplate"


@admission("https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html")
def fabric_on_type_and_zone(inputs: Properties, state: CloudState) -> Found:
    """Reject more EFA adapters than the instance type has, and placement groups in several zones."""
    template = state.find(str(at(inputs, "launchTemplate.id")), _TEMPLATE)
    machine = machine_of(inputs, state)
    if template is None or machine is None:
        return
    given = template.inputs.get("networkInterfaces") or []
    adapters = sum(str(each.get("interfaceType", "")).startswith("efa") for each in given)
    if adapters > machine.efa_interfaces:
        yield "launchTemplate", f"{machine.name} has {machine.efa_interfaces} fabric adapters, not {adapters}"
    if at(template.inputs, "placement.groupName") and len(inputs.get("subnetIds") or []) > 1:
        yield "subnetIds", "must be one subnet, because a cluster placement group is in one zone"


@admission("https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html")
def node_role(inputs: Properties, state: CloudState) -> Found:
    """Require a node role that EC2 may assume."""
    yield from _trusted(inputs.get("nodeRoleArn"), "nodeRoleArn", "ec2.amazonaws.com", state)


@admission("https://docs.aws.amazon.com/eks/latest/userguide/cluster-iam-role.html")
def cluster_role(inputs: Properties, state: CloudState) -> Found:
    """Require a cluster role that EKS may assume."""
    yield from _trusted(inputs.get("roleArn"), "roleArn", "eks.amazonaws.com", state)


@admission("https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html")
def pod_role(inputs: Properties, state: CloudState) -> Found:
    """Require a pod role that EKS Pod Identity may assume."""
    yield from _trusted(inputs.get("roleArn"), "roleArn", "pods.eks.amazonaws.com", state)


def _trusted(arn: object, where: str, service: str, state: CloudState) -> Found:
    role = state.find(str(arn), _ROLE)
    policy = role.inputs.get("assumeRolePolicy") if role else None
    if isinstance(policy, str) and service not in json.dumps(json.loads(policy)):
        yield where, f"{service} may not assume {arn}"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html")
def addon_exists(inputs: Properties) -> Found:
    """Require an add-on that exists."""
    name = inputs.get("addonName")
    if isinstance(name, str) and name not in ADDONS:
        yield "addonName", f"{name!r} is not an add-on that the rehearsal knows"


@admission("https://docs.aws.amazon.com/eks/latest/userguide/eks-add-ons.html")
def addon_has_nodes(inputs: Properties, state: CloudState) -> Found:
    """Require a node group for add-ons whose pods need nodes.

    Without nodes, such an add-on stays degraded.
    """
    groups = [each for each in state.of_type(_NODE_GROUP) if each.inputs["clusterName"] == inputs.get("clusterName")]
    if inputs.get("addonName") in _ON_NODES and not groups:
        yield "addonName", f"{inputs['addonName']} never becomes active: the cluster has no nodes yet"


@rule("https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html")
def access_entry(inputs: Properties) -> Found:
    """Require the ARN of a role or a user."""
    principal = inputs.get("principalArn")
    if isinstance(principal, str) and not _PRINCIPAL.fullmatch(principal):
        yield "principalArn", f"{principal!r} must be like arn:aws:iam::{ACCOUNT}:role/NAME"


CLUSTER_RULES = (
    eks_cluster_name,
    log_types,
    has_an_endpoint,
    subnets_in_two_zones,
    version_goes_up_by_one,
    zones_stay,
    cluster_role,
)
GROUP_RULES = (
    node_group_name,
    scaling,
    image_has_drivers,
    disk_is_in_the_template,
    fabric_on_type_and_zone,
    node_role,
    group_not_above_cluster,
    block_is_in_the_template,
)
