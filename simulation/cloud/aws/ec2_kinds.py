"""Kinds of EC2 and VPC resources that a training stack uses."""

from __future__ import annotations

from typing import Any

from simulation.cloud.aws import network_rules
from simulation.cloud.aws.account import ACCOUNT
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


KINDS = (
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
