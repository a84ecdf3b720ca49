"""Cloud components of a GKE stack and the APIs that they need, in order of creation.

The resources inside the cluster are in `platform.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.cluster import GkeCluster, GkeClusterArgs
from infra.gcp.config import GkeConfig
from infra.gcp.identity import NodeIdentity, NodeIdentityArgs, WorkloadIdentity, WorkloadIdentityArgs
from infra.gcp.network import AcceleratorNetwork, AcceleratorNetworkArgs, Network, NetworkArgs
from infra.gcp.node_pool import AcceleratorNodePool, AcceleratorNodePoolArgs, SystemNodePool, SystemNodePoolArgs
from infra.gcp.pools import Fabric, NodePoolPlan, fabric_of, machine_fabric, node_pools
from infra.gcp.storage import CheckpointBucket, CheckpointBucketArgs, ImageRepository, ImageRepositoryArgs
from infra.namespace import SERVICE_ACCOUNT

ClusterAndNodes = tuple[GkeCluster, SystemNodePool, Mapping[str, AcceleratorNodePool]]


@dataclass(frozen=True, kw_only=True)
class GkeComponents:
    """Cloud components that the rest of the platform uses."""

    cluster: GkeCluster
    """The control plane."""
    system: SystemNodePool
    """Nodes for pods other than jobs. Resources in the cluster wait for these nodes."""
    plans: list[NodePoolPlan]
    """Plans of the pools for jobs."""
    pools: Mapping[str, AcceleratorNodePool]
    """The pools for jobs by their names in GKE."""
    fabrics: list[tuple[Fabric, AcceleratorNetwork]]
    """Networks between GPUs of different hosts, each with its fabric."""
    identity: WorkloadIdentity
    """Identity of the jobs."""
    bucket: CheckpointBucket
    """Bucket for checkpoints, metrics and profiles."""
    repository: ImageRepository | None
    """Repository of the trainer image; None if the image is prebuilt."""


def build_components(config: GkeConfig) -> GkeComponents:
    """Provision all cloud components."""
    project = ProjectServices("services", ProjectServicesArgs(project=config.project)).project
    plans = node_pools(config)
    account = NodeIdentity("nodes", NodeIdentityArgs(project=project, cluster=config.name)).email
    fabrics = _fabrics(config, project, plans)
    cluster, system, pools = _cluster(config, project, account, plans, fabrics)
    identity = WorkloadIdentity(
        "jobs",
        WorkloadIdentityArgs(
            project=project,
            cluster=config.name,
            workload_pool=cluster.workload_pool,
            namespace=config.namespace,
            service_account=SERVICE_ACCOUNT,
        ),
    )
    bucket = CheckpointBucket(
        "bucket",
        CheckpointBucketArgs(
            project=project,
            cluster=config.name,
            location=config.region,
            config=config.bucket,
            member=identity.member,
        ),
    )
    repository = None
    if config.image.prebuilt is None:
        args = ImageRepositoryArgs(project=project, cluster=config.name, config=config.registry, reader=account)
        repository = ImageRepository("registry", args)
    return GkeComponents(
        cluster=cluster,
        system=system,
        plans=plans,
        pools=pools,
        fabrics=list(fabrics.values()),
        identity=identity,
        bucket=bucket,
        repository=repository,
    )


def _fabrics(
    config: GkeConfig, project: pulumi.Output[str], plans: list[NodePoolPlan]
) -> dict[str, tuple[Fabric, AcceleratorNetwork]]:
    """Return zone -> networks between the GPUs of different hosts in that zone."""
    networks = {}
    for zone, fabric in {plan.zones[0]: fabric for plan in plans if (fabric := fabric_of(plan))}.items():
        args = AcceleratorNetworkArgs(
            project=project, cluster=config.name, zone=zone, fabric=fabric, network=config.network.accelerators
        )
        networks[zone] = fabric, AcceleratorNetwork("fabric", args)
    return networks


def _cluster(
    config: GkeConfig,
    project: pulumi.Output[str],
    account: pulumi.Output[str],
    plans: list[NodePoolPlan],
    fabrics: Mapping[str, tuple[Fabric, AcceleratorNetwork]],
) -> ClusterAndNodes:
    """Provision the control plane in its own network, and its nodes."""
    network = _network(config, project)
    cluster = GkeCluster(
        "cluster",
        GkeClusterArgs(
            project=project,
            config=config,
            network=network.network,
            subnetwork=network.subnetwork,
            node_service_account=account,
            multi_networking=any(machine_fabric(plan.machine) for plan in plans),
        ),
    )
    system = SystemNodePool(
        "system", SystemNodePoolArgs(project=project, cluster=cluster.name, service_account=account, config=config)
    )
    pools = {
        plan.name: AcceleratorNodePool(
            plan.name,
            AcceleratorNodePoolArgs(
                project=project,
                cluster=_name_after_networks(fabrics[plan.zones[0]][1], cluster) if fabric_of(plan) else cluster.name,
                service_account=account,
                config=config,
                plan=plan,
                networks=fabrics[plan.zones[0]][1].names if fabric_of(plan) else [],
                # Create the system pool first: if it has no capacity, the update fails before expensive nodes start.
                after=[system],
            ),
        )
        for plan in plans
    }
    return cluster, system, pools


def _name_after_networks(fabric: AcceleratorNetwork, cluster: GkeCluster) -> pulumi.Output[str]:
    """Return the cluster's name as an output that depends on the fabric's networks.

    Google does not delete a subnet with nodes, so the engine must delete the pool before it replaces the pool's
    networks. It does so because a new `cluster` replaces a pool, and the pool's `cluster` depends on the networks:
    https://www.pulumi.com/docs/iac/concepts/resources/options/deletebeforereplace/
    """
    return pulumi.Output.all(cluster.name, fabric.networks).apply(lambda values: str(values[0]))


def _network(config: GkeConfig, project: pulumi.Output[str]) -> Network:
    """Provision the cluster's own VPC."""
    ranges = config.network
    return Network(
        "network",
        NetworkArgs(
            project=project,
            region=config.region,
            name=config.name,
            nodes=ranges.nodes,
            pods=ranges.pods,
            services=ranges.services,
        ),
    )


API_NAMES = ("artifactregistry", "compute", "container", "iam", "logging", "monitoring", "storage")
"""APIs without their suffix `.googleapis.com`."""


@dataclass(frozen=True, kw_only=True)
class ProjectServicesArgs:
    """Inputs of `ProjectServices`."""

    project: str
    """Id of the project."""


class ProjectServices(pulumi.ComponentResource):
    """Enabled APIs. They stay enabled after the stack is destroyed, because other users may need them."""

    project: pulumi.Output[str]
    """Project id, known when all APIs are enabled. Resources that need the APIs use this output."""

    def __init__(self, name: str, args: ProjectServicesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:ProjectServices", name, None, opts)
        services = [
            gcp.projects.Service(
                f"{name}-{service}",
                project=args.project,
                service=f"{service}.googleapis.com",
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in API_NAMES
        ]
        enabled = pulumi.Output.all(*(service.service for service in services))
        self.project = enabled.apply(lambda _names: args.project)
        self.register_outputs({"project": self.project})
