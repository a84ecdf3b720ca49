"""Network: a cluster's VPC with private and public subnets, NAT, and VPC endpoints for S3 and ECR."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

import pulumi
from pulumi_aws import ec2

from infra.aws.config import EksConfig
from infra.aws.pools import INTERFACE_ENDPOINTS

SUBNET_TIMEOUTS = pulumi.CustomTimeouts(delete="40m")
"""Timeouts of subnets. AWS deletes the nodes' network interfaces minutes after the nodes:
https://github.com/aws/amazon-vpc-cni-k8s/issues/1223"""


class Network(pulumi.ComponentResource):
    """VPC of the cluster. Nodes are in private subnets. Public subnets contain only NAT gateways."""

    private_subnets: dict[str, pulumi.Output[str]]
    """Zone -> id of its private subnet, known once the subnet has internet access."""

    def __init__(self, name: str, *, config: EksConfig, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:Network", name, None, opts)
        self._name, self._cluster = name, config.name
        vpc = ec2.Vpc(
            f"{name}-vpc",
            cidr_block=config.network.vpc,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": config.name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        # AWS's default security group allows all traffic between its members. Remove its rules.
        ec2.DefaultSecurityGroup(
            f"{name}-default-group", vpc_id=vpc.id, ingress=[], egress=[], opts=pulumi.ResourceOptions(parent=self)
        )
        zones = config.all_zones
        private, public = ranges(config)
        gateways = self._gateways(vpc.id, zones[: len(zones) if config.network.nat_per_zone else 1], public)
        tables = []
        self.private_subnets = {}
        for zone in zones:
            subnet = self._subnet("private", zone, vpc.id, private[zone])
            gateway = gateways.get(zone, gateways[zones[0]])
            route = ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", nat_gateway_id=gateway.id)
            table, association = self._routes("private", zone, vpc.id, subnet.id, route)
            tables.append(table.id)
            self.private_subnets[zone] = pulumi.Output.all(subnet.id, association.id).apply(lambda ids: str(ids[0]))
        self._endpoints(config, vpc.id, tables)
        self.register_outputs({"private_subnets": self.private_subnets})

    def _gateways(
        self, vpc: pulumi.Output[str], zones: Sequence[str], public: dict[str, str]
    ) -> dict[str, ec2.NatGateway]:
        """Create the internet gateway, and a NAT gateway in each of the zones."""
        child = pulumi.ResourceOptions(parent=self)
        internet = ec2.InternetGateway(f"{self._name}-internet", vpc_id=vpc, tags={"Name": self._cluster}, opts=child)
        gateways = {}
        for zone in zones:
            subnet = self._subnet("public", zone, vpc, public[zone])
            route = ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", gateway_id=internet.id)
            _table, association = self._routes("public", zone, vpc, subnet.id, route)
            address = ec2.Eip(
                f"{self._name}-nat-address-{zone}", domain="vpc", tags=self._tags("nat", zone), opts=child
            )
            gateways[zone] = ec2.NatGateway(
                f"{self._name}-nat-{zone}",
                subnet_id=subnet.id,
                allocation_id=address.allocation_id,
                tags=self._tags("nat", zone),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[internet, association]),
            )
        return gateways

    def _subnet(self, kind: str, zone: str, vpc: pulumi.Output[str], network: str) -> ec2.Subnet:
        role = "internal-elb" if kind == "private" else "elb"
        return ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=vpc,
            availability_zone=zone,
            cidr_block=network,
            map_public_ip_on_launch=False,
            tags=self._tags(kind, zone) | {f"kubernetes.io/role/{role}": "1"},
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=SUBNET_TIMEOUTS),
        )

    def _routes(
        self, kind: str, zone: str, vpc: pulumi.Output[str], subnet: pulumi.Output[str], route: ec2.RouteTableRouteArgs
    ) -> tuple[ec2.RouteTable, ec2.RouteTableAssociation]:
        child = pulumi.ResourceOptions(parent=self)
        table = ec2.RouteTable(
            f"{self._name}-{kind}-routes-{zone}", vpc_id=vpc, routes=[route], tags=self._tags(kind, zone), opts=child
        )
        association = ec2.RouteTableAssociation(
            f"{self._name}-{kind}-association-{zone}", route_table_id=table.id, subnet_id=subnet, opts=child
        )
        return table, association

    def _endpoints(self, config: EksConfig, vpc: pulumi.Output[str], tables: list[pulumi.Output[str]]) -> None:
        """Create endpoints. Images and checkpoints would otherwise pass the NAT gateway, which costs money per GB."""
        child = pulumi.ResourceOptions(parent=self)
        services = f"com.amazonaws.{config.region}"
        ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=vpc,
            service_name=f"{services}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=tables,
            tags=self._tags("s3"),
            opts=child,
        )
        group = ec2.SecurityGroup(
            f"{self._name}-endpoints",
            vpc_id=vpc,
            description="HTTPS from the VPC to AWS services",
            tags=self._tags("endpoints"),
            ingress=[
                ec2.SecurityGroupIngressArgs(
                    protocol="tcp", from_port=443, to_port=443, cidr_blocks=[config.network.vpc]
                )
            ],
            opts=child,
        )
        for service in INTERFACE_ENDPOINTS:
            ec2.VpcEndpoint(
                f"{self._name}-{service}",
                vpc_id=vpc,
                service_name=f"{services}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.private_subnets.values()),
                security_group_ids=[group.id],
                tags=self._tags(service),
                opts=child,
            )

    def _tags(self, *parts: str) -> dict[str, str]:
        """Return a name tag, unique among resources of the same kind. Recovery from an interrupted update needs it."""
        return {"Name": "-".join((self._cluster, *parts))}


def ranges(config: EksConfig) -> tuple[dict[str, str], dict[str, str]]:
    """Return zone -> private range (a quarter of the VPC), and zone -> public range (a sixteenth)."""
    *quarters, last_quarter = IPv4Network(config.network.vpc).subnets(prefixlen_diff=2)
    zones = config.all_zones
    private = dict(zip(zones, map(str, quarters), strict=False))
    return private, dict(zip(zones, map(str, last_quarter.subnets(prefixlen_diff=2)), strict=False))
