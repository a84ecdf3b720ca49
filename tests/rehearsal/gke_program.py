"""Everything that a GKE stack makes in the cloud, without what is inside the cluster: the program of killed updates."""

from __future__ import annotations

import json

from infra.gcp.cluster import GkeCluster, GkeClusterArgs
from infra.gcp.config import GkeConfig
from infra.gcp.identity import NodeIdentity, NodeIdentityArgs, WorkloadIdentity, WorkloadIdentityArgs
from infra.gcp.network import Network, NetworkArgs
from infra.gcp.node_pool import AcceleratorNodePool, AcceleratorNodePoolArgs, SystemNodePool, SystemNodePoolArgs
from infra.gcp.pools import node_pools
from infra.gcp.registry import ImageRepository, ImageRepositoryArgs
from infra.gcp.services import ProjectServices, ProjectServicesArgs
from infra.gcp.storage import CheckpointBucket, CheckpointBucketArgs


def build(settings: dict[str, object]) -> None:
    """Make it, as `infra.gcp.platform` does."""
    config = GkeConfig.model_validate_json(json.dumps(settings))
    project = ProjectServices("services", ProjectServicesArgs(project=config.project)).project
    account = NodeIdentity("nodes", NodeIdentityArgs(project=project, cluster=config.name)).email
    ranges = config.network
    network = Network(
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
    cluster = GkeCluster(
        "cluster",
        GkeClusterArgs(
            project=project,
            config=config,
            network=network.network,
            subnetwork=network.subnetwork,
            node_service_account=account,
            multi_networking=False,
        ),
    )
    system = SystemNodePool(
        "system", SystemNodePoolArgs(project=project, cluster=cluster.name, service_account=account, config=config)
    )
    for plan in node_pools(config):
        AcceleratorNodePool(
            plan.name,
            AcceleratorNodePoolArgs(
                project=project,
                cluster=cluster.name,
                service_account=account,
                config=config,
                plan=plan,
                networks=[],
                after=[system],
            ),
        )
    identity = WorkloadIdentity(
        "jobs",
        WorkloadIdentityArgs(
            project=project,
            cluster=config.name,
            workload_pool=cluster.workload_pool,
            namespace=config.namespace,
            service_account="trainer",
        ),
    )
    CheckpointBucket(
        "bucket",
        CheckpointBucketArgs(
            project=project,
            cluster=config.name,
            location=config.region,
            config=config.bucket,
            member=identity.member,
        ),
    )
    ImageRepository("registry", ImageRepositoryArgs(project=project, config=config.registry, reader=account))
