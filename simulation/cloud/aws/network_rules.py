"""Rules of VPCs, subnets, endpoints, placement groups and launch templates."""

from __future__ import annotations

import base64
import binascii
import re

from infra.hardware.ec2 import EC2_MACHINES
from simulation.cloud.gcp.network_rules import parsed
from simulation.cloud.kind import Found, admission, at, rule
from simulation.cloud.state import CloudState, Properties

_VPC = "aws:ec2/vpc:Vpc"
_SUBNET = "aws:ec2/subnet:Subnet"
_USER_DATA_BYTES = 16 * 1024
_SIZES = "https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html"
_SUBNETS = "https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"


def _bad_size(text: object) -> str:
    if not isinstance(text, str):
        return ""
    network = parsed(text)
    if network is None:
        return f"{text!r} is not an IPv4 network such as 10.0.0.0/16; host bits must be zero"
    return "" if 16 <= network.prefixlen <= 28 else f"{text} must be a /16 to a /28"


@rule(_SIZES)
def vpc_size(inputs: Properties) -> Found:
    """Require a /16 to a /28 for a VPC."""
    if reason := _bad_size(inputs.get("cidrBlock")):
        yield "cidrBlock", reason


@rule(_SUBNETS)
def subnet_size(inputs: Properties) -> Found:
    """Require a /16 to a /28 for a subnet."""
    if reason := _bad_size(inputs.get("cidrBlock")):
        yield "cidrBlock", reason


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-regions-availability-zones.html")
def subnet_zone(inputs: Properties) -> Found:
    """Require a zone of the region."""
    zone, region = inputs.get("availabilityZone"), inputs.get("region")
    if (
        isinstance(zone, str)
        and isinstance(region, str)
        and not re.fullmatch(rf"{re.escape(region)}(-[a-z0-9-]+)?[a-z]", zone)
    ):
        yield "availabilityZone", f"{zone} is not a zone of {region}"


@admission(_SUBNETS)
def subnet_in_vpc(inputs: Properties, state: CloudState) -> Found:
    """Require a subnet within the VPC's range that does not overlap the VPC's other subnets."""
    ours = parsed(inputs.get("cidrBlock"))
    vpc = state.find(str(inputs.get("vpcId")), _VPC)
    whole = parsed(vpc.inputs.get("cidrBlock")) if vpc else None
    if ours and whole and not ours.subnet_of(whole):
        yield "cidrBlock", f"{ours} is not in {whole} of the VPC"
    for other in state.of_type(_SUBNET):
        theirs = parsed(other.inputs.get("cidrBlock"))
        if other.inputs.get("vpcId") == inputs.get("vpcId") and ours and theirs and ours.overlaps(theirs):
            yield "cidrBlock", f"{ours} overlaps {theirs} of {other.id}"


@rule("https://docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html")
def endpoint_service(inputs: Properties) -> Found:
    """Require a service of the region. Only S3 and DynamoDB have gateway endpoints."""
    name, region = inputs.get("serviceName"), inputs.get("region")
    if isinstance(name, str) and isinstance(region, str) and not name.startswith(f"com.amazonaws.{region}."):
        yield "serviceName", f"{name!r} must begin with com.amazonaws.{region}."
    gateway = inputs.get("vpcEndpointType", "Gateway") == "Gateway"
    if isinstance(name, str) and gateway and name.rpartition(".")[2] not in ("s3", "dynamodb"):
        yield "vpcEndpointType", f"{name} has no gateway endpoint: write Interface"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html")
def placement_strategy(inputs: Properties) -> Found:
    """Require a strategy that exists."""
    strategy = inputs.get("strategy")
    if isinstance(strategy, str) and strategy not in ("cluster", "partition", "spread"):
        yield "strategy", f"{strategy!r} must be cluster, partition or spread"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html")
def user_data(inputs: Properties) -> Found:
    """Require at most 16 KiB of base64-encoded user data."""
    text = inputs.get("userData")
    if not isinstance(text, str):
        return
    try:
        size = len(base64.b64decode(text, validate=True))
    except binascii.Error:
        yield "userData", "must be base64"
        return
    if size > _USER_DATA_BYTES:
        yield "userData", f"has {size} bytes, more than {_USER_DATA_BYTES}"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html")
def efa_interfaces(inputs: Properties) -> Found:
    """Reject more EFA adapters than the instance type has."""
    machine = EC2_MACHINES.get(str(inputs.get("instanceType")))
    given = inputs.get("networkInterfaces") or []
    adapters = [each for each in given if str(each.get("interfaceType", "")).startswith("efa")]
    if machine and len(adapters) > machine.efa_interfaces:
        yield "networkInterfaces", f"{machine.name} has {machine.efa_interfaces} fabric adapters, not {len(adapters)}"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-eni.html#network-cards")
def security_groups_once(inputs: Properties) -> Found:
    """Reject security groups for both the instance and its network interfaces."""
    if inputs.get("networkInterfaces") and inputs.get("vpcSecurityGroupIds"):
        yield "vpcSecurityGroupIds", "cannot be set together with networkInterfaces: set them on each interface"


@rule("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-using.html")
def capacity_block(inputs: Properties) -> Found:
    """Require the reservation of a capacity block."""
    block = at(inputs, "instanceMarketOptions.marketType") == "capacity-block"
    target = at(inputs, "capacityReservationSpecification.capacityReservationTarget.capacityReservationId")
    if block and not target:
        yield "capacityReservationSpecification", "must name the reservation of the capacity block"


SUBNET_RULES = (subnet_size, subnet_zone, subnet_in_vpc)
TEMPLATE_RULES = (user_data, efa_interfaces, security_groups_once, capacity_block)
