"""Network: a cluster's VPC, subnet and ranges, and the NAT that gives private nodes internet access."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

PODS = "pods"
SERVICES = "services"
TIMEOUTS = pulumi.CustomTimeouts(create="10m", update="10m", delete="20m")
"""Timeouts of networks. Google can delete a network only some minutes after its last user is deleted."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """Inputs of `Network`."""

    project: pulumi.Input[str]
    """Project of the network."""
    region: str
    """Region of the subnet."""
    name: str
    """Name of the VPC and prefix of its resources' names."""
    nodes: str
    """Range of the nodes."""
    pods: str
    """Range of the pods."""
    services: str
    """Range of the Kubernetes Services."""


class Network(pulumi.ComponentResource):
    """VPC of the cluster. Nodes have no public addresses."""

    network: pulumi.Output[str]
    """Reference to the VPC, known when nodes can reach the internet."""
    subnetwork: pulumi.Output[str]
    """Subnet of the nodes."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:Network", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, custom_timeouts=TIMEOUTS)
        vpc = gcp.compute.Network(
            f"{name}-vpc",
            name=args.name,
            project=args.project,
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            opts=child,
        )
        subnet = gcp.compute.Subnetwork(
            f"{name}-subnet",
            name=args.name,
            project=args.project,
            region=args.region,
            network=vpc.id,
            ip_cidr_range=args.nodes,
            secondary_ip_ranges=[
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=PODS, ip_cidr_range=args.pods),
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=SERVICES, ip_cidr_range=args.services),
            ],
            private_ip_google_access=True,
            opts=child,
        )
        router = gcp.compute.Router(
            f"{name}-router", name=args.name, project=args.project, region=args.region, network=vpc.id, opts=child
        )
        nat = gcp.compute.RouterNat(
            f"{name}-nat",
            name=args.name,
            project=args.project,
            region=args.region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            # Pods of one node that download data at the same time need more than the default 64 ports.
            enable_dynamic_port_allocation=True,
            enable_endpoint_independent_mapping=False,
            min_ports_per_vm=64,
            max_ports_per_vm=8192,
            log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=child,
        )
        # The cluster must wait for the NAT, because nodes without internet access never become ready.
        self.network = pulumi.Output.all(vpc.id, nat.id).apply(lambda ids: ids[0])
        self.subnetwork = subnet.id
        self.register_outputs({"network": self.network, "subnetwork": self.subnetwork})
