"""Network: a cluster's VPC, subnet and NAT. AcceleratorNetwork and PodNetworks: a fabric's VPCs and pod networks."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_gcp as gcp
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.gcp.config import GkeConfig
from infra.gcp.pools import Fabric, subnets
from infra.naming import fit_name, stack_labels

NAME_LIMIT = 63
"""Maximum length of the names of networks, subnets and firewall rules."""
PODS, SERVICES = "pods", "services"
"""Names of the subnet's secondary ranges."""
TIMEOUTS = pulumi.CustomTimeouts(create="10m", update="10m", delete="20m")
"""Timeouts of networks. Google can delete a network only some minutes after its last user is deleted."""


class Network(pulumi.ComponentResource):
    """VPC of the cluster. Nodes have no public addresses."""

    network: pulumi.Output[str]
    """Id of the VPC. Resources that use it also wait for the NAT gateway."""
    subnetwork: pulumi.Output[str]
    """Subnet of the nodes."""

    def __init__(
        self, name: str, *, project: pulumi.Input[str], config: GkeConfig, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:gcp:Network", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, custom_timeouts=TIMEOUTS)
        vpc = gcp.compute.Network(
            f"{name}-vpc",
            name=config.name,
            project=project,
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            opts=child,
        )
        subnet = gcp.compute.Subnetwork(
            f"{name}-subnet",
            name=config.name,
            project=project,
            region=config.region,
            network=vpc.id,
            ip_cidr_range=config.network.nodes,
            secondary_ip_ranges=[
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=PODS, ip_cidr_range=config.network.pods),
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=SERVICES, ip_cidr_range=config.network.services),
            ],
            private_ip_google_access=True,
            opts=child,
        )
        router = gcp.compute.Router(
            f"{name}-router", name=config.name, project=project, region=config.region, network=vpc.id, opts=child
        )
        nat = gcp.compute.RouterNat(
            f"{name}-nat",
            name=config.name,
            project=project,
            region=config.region,
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
        # The cluster waits for the NAT, so that nodes have internet access from their start.
        self.network = pulumi.Output.all(vpc.id, nat.id).apply(lambda ids: ids[0])
        self.subnetwork = subnet.id
        self.register_outputs({"network": self.network, "subnetwork": self.subnetwork})


class AcceleratorNetwork(pulumi.ComponentResource):
    """VPCs for the traffic between GPUs of different hosts. An RDMA network belongs to one zone."""

    names: list[tuple[str, str]]
    """VPC and subnet names of each interface, in order."""
    networks: pulumi.Output[list[tuple[str, str]]]
    """VPC and subnet names of each interface, known once the networks exist."""

    def __init__(
        self,
        name: str,
        *,
        project: pulumi.Input[str],
        config: GkeConfig,
        zone: str,
        fabric: Fabric,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:AcceleratorNetwork", name, None, opts)
        self._name, self._project, self._config = name, project, config
        self._zone, self._fabric = zone, fabric
        child = pulumi.ResourceOptions(parent=self, custom_timeouts=TIMEOUTS)
        vpcs: dict[str, gcp.compute.Network] = {}
        for vpc in fabric.vpcs:
            vpcs[vpc] = self._vpc(vpc, _after_first(vpcs, child))
        region = zone.rpartition("-")[0]
        self.names, pairs = [], []
        created: dict[str, gcp.compute.Subnetwork] = {}
        for interface in fabric.interfaces:
            subnet = created[interface.name] = gcp.compute.Subnetwork(
                f"{name}-{interface.name}",
                name=fit_name(config.name, interface.name, NAME_LIMIT),
                project=project,
                region=region,
                network=vpcs[interface.vpc].id,
                ip_cidr_range=subnets(fabric, config.network.accelerators)[interface.name],
                opts=_after_first(created, child),
            )
            self.names.append(
                (fit_name(config.name, interface.vpc, NAME_LIMIT), fit_name(config.name, interface.name, NAME_LIMIT))
            )
            names = pulumi.Output.all(vpcs[interface.vpc].name, subnet.name)
            pairs.append(names.apply(lambda values: (values[0], values[1])))
        self.networks = pulumi.Output.all(*pairs).apply(list)
        self.register_outputs({"networks": self.networks})

    def _vpc(self, vpc: str, opts: pulumi.ResourceOptions) -> gcp.compute.Network:
        is_rdma = self._fabric.rdma_profile is not None and vpc == "rdma"
        profile = pulumi.Output.concat(
            "projects/", self._project, f"/global/networkProfiles/{self._zone}-{self._fabric.rdma_profile}"
        )
        network = gcp.compute.Network(
            f"{self._name}-{vpc}-vpc",
            name=fit_name(self._config.name, vpc, NAME_LIMIT),
            project=self._project,
            auto_create_subnetworks=False,
            mtu=self._fabric.mtu,
            network_profile=profile if is_rdma else None,
            opts=opts,
        )
        if not is_rdma:
            # Hosts connect to each other on any port, and this VPC contains only hosts. RDMA networks do not support
            # firewall rules.
            gcp.compute.Firewall(
                f"{self._name}-{vpc}-inside",
                name=fit_name(self._config.name, vpc, NAME_LIMIT),
                project=self._project,
                network=network.id,
                direction="INGRESS",
                source_ranges=[self._config.network.accelerators],
                allows=[gcp.compute.FirewallAllowArgs(protocol=protocol) for protocol in ("tcp", "udp", "icmp")],
                # Google does not delete a VPC with a firewall rule. If Pulumi replaces the VPC, the provider would only
                # update the rule, because `network` is not ForceNew
                # (google-beta/services/compute/resource_compute_firewall.go:259 of terraform-provider-google-beta).
                opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(replace_on_changes=["network"])),
            )
        return network


def _after_first(created: Mapping[str, pulumi.Resource], opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Return options that make a resource wait for the first of `created`.

    Google does not delete a network that a pool uses. Pulumi therefore deletes the pools, and then replaces the first
    network. With this dependency, Pulumi replaces the other networks only after that.
    """
    first = next(iter(created.values()), None)
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=None if first is None else [first]))


class PodNetworks(pulumi.ComponentResource):
    """GKE's custom resources `Network` and `GKENetworkParamSet` of each interface. Pod annotations use `Network`."""

    def __init__(
        self,
        name: str,
        *,
        fabric: Fabric,
        networks: pulumi.Output[list[tuple[str, str]]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:PodNetworks", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for index, interface in enumerate(fabric.interfaces):
            vpc_and_subnet = networks[index]
            metadata = ObjectMetaArgs(name=interface.name, labels=stack_labels())
            CustomResource(
                f"{name}-{interface.name}-parameters",
                api_version="networking.gke.io/v1",
                kind="GKENetworkParamSet",
                metadata=metadata,
                spec={"vpc": vpc_and_subnet[0], "vpcSubnet": vpc_and_subnet[1], "deviceMode": interface.device_mode},
                opts=child,
            )
            CustomResource(
                f"{name}-{interface.name}",
                api_version="networking.gke.io/v1",
                kind="Network",
                metadata=metadata,
                spec={
                    "type": "Device",
                    "parametersRef": {
                        "group": "networking.gke.io",
                        "kind": "GKENetworkParamSet",
                        "name": interface.name,
                    },
                },
                opts=child,
            )
        self.register_outputs({})
