"""Builds the platform `gke` from its components: what is made, in which order, and what jobs get of it."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes

from infra.cloud_image import trainer_images
from infra.gcp.accelerator_network import AcceleratorNetwork, AcceleratorNetworkArgs, PodNetworks, PodNetworksArgs
from infra.gcp.cluster import GkeCluster, GkeClusterArgs, context_name
from infra.gcp.compute_class import CapacityLadder, CapacityLadderArgs
from infra.gcp.config import GkeConfig
from infra.gcp.fabrics import Fabric, fabric_of
from infra.gcp.identity import NodeIdentity, NodeIdentityArgs, WorkloadIdentity, WorkloadIdentityArgs
from infra.gcp.network import Network, NetworkArgs
from infra.gcp.node_pool import AcceleratorNodePool, AcceleratorNodePoolArgs, SystemNodePool, SystemNodePoolArgs
from infra.gcp.pools import NodePoolPlan, node_pools
from infra.gcp.registry import ImageRepository, ImageRepositoryArgs
from infra.gcp.services import ProjectServices, ProjectServicesArgs
from infra.gcp.storage import CheckpointBucket, CheckpointBucketArgs
from infra.namespace import SERVICE_ACCOUNT, TrainingNamespace, TrainingNamespaceArgs
from infra.platform import Platform, kubeconfig_path

Images = tuple[pulumi.Input[str], dict[str, pulumi.Input[str]]]
"""The trainer's image, and further ones by name."""
IDENTITY_ANNOTATION = "iam.gke.io/gcp-service-account"


def build_gke(config: GkeConfig, images: frozenset[str] = frozenset()) -> Platform:
    """Provision the platform for jobs that need, of Trainyard's own images, `images`."""
    project = ProjectServices("services", ProjectServicesArgs(project=config.project)).project
    plans = node_pools(config)
    fabrics = {plan.zones[0]: fabric for plan in plans if (fabric := fabric_of(plan))}
    node_account = NodeIdentity("nodes", NodeIdentityArgs(project=project, cluster=config.name)).email
    network = _network(config, project)
    cluster = GkeCluster(
        "cluster",
        GkeClusterArgs(
            project=project,
            config=config,
            network=network.network,
            subnetwork=network.subnetwork,
            node_service_account=node_account,
            multi_networking=bool(fabrics),
        ),
    )
    system = SystemNodePool(
        "system",
        SystemNodePoolArgs(project=project, cluster=cluster.name, service_account=node_account, config=config),
    )
    provider = pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        cluster_identifier=cluster.control_plane.id,
        opts=pulumi.ResourceOptions(depends_on=[system], deleted_with=cluster.control_plane),
    )
    inside = pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=cluster.control_plane)
    networks = {zone: _fabric(config, project, zone, fabric, inside).networks for zone, fabric in fabrics.items()}
    pools = {
        plan.name: AcceleratorNodePool(
            plan.name,
            AcceleratorNodePoolArgs(
                project=project,
                cluster=cluster.name,
                service_account=node_account,
                config=config,
                plan=plan,
                networks=networks[plan.zones[0]] if fabric_of(plan) else [],
                # So that a stock-out of its nodes is known before anything dear has begun.
                after=[system],
            ),
        )
        for plan in plans
    }
    _ladders(plans, pools, inside)
    return _platform(config, project, cluster, provider, inside, _trainer_images(config, project, node_account, images))


def _network(config: GkeConfig, project: pulumi.Output[str]) -> Network:
    """The cluster's own VPC."""
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


def _fabric(
    config: GkeConfig, project: pulumi.Output[str], zone: str, fabric: Fabric, inside: pulumi.ResourceOptions
) -> AcceleratorNetwork:
    """The networks between the GPUs of different hosts, and their names in the cluster."""
    made = AcceleratorNetwork(
        "fabric",
        AcceleratorNetworkArgs(
            project=project, cluster=config.name, zone=zone, fabric=fabric, network=config.network.accelerators
        ),
    )
    PodNetworks("pod-networks", PodNetworksArgs(fabric=fabric, networks=made.networks), inside)
    return made


def _ladders(plans: list[NodePoolPlan], pools: dict[str, AcceleratorNodePool], inside: pulumi.ResourceOptions) -> None:
    """A ComputeClass for each pool that is tried in several ways."""
    for pool in dict.fromkeys(plan.pool.name for plan in plans if plan.ladder):
        rungs: dict[str, list[pulumi.Output[str]]] = {}
        for plan in plans:
            if plan.pool.name == pool:
                rungs.setdefault(plan.rung, []).append(pools[plan.name].name)
        CapacityLadder(f"{pool}-ladder", CapacityLadderArgs(pool=pool, node_pools=list(rungs.values())), inside)


def _platform(
    config: GkeConfig,
    project: pulumi.Output[str],
    cluster: GkeCluster,
    provider: pulumi_kubernetes.Provider,
    inside: pulumi.ResourceOptions,
    images: Images,
) -> Platform:
    """What jobs get: who they are, their bucket, their image."""
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
    training = TrainingNamespace(
        "training",
        TrainingNamespaceArgs(namespace=config.namespace, account_annotations={IDENTITY_ANNOTATION: identity.email}),
        inside,
    )
    context = context_name(config)
    path = kubeconfig_path(context)
    endpoint = "" if config.authorized_networks else " --dns-endpoint"
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=images[0],
        own_images=images[1],
        bucket_url=bucket.url,
        bucket_claim=None,
        bucket_location=bucket.url,
        kubectl=pulumi.Output.concat(f"kubectl --kubeconfig {path} -n ", training.namespace),
        kubeconfig_path=path,
        context=context,
        get_kubeconfig=(
            f"gcloud container clusters get-credentials {config.name} --location {config.location} "
            f"--project {config.project}{endpoint}"
        ),
        console=_console(config),
        kubeconfig=pulumi.Output.secret(cluster.kubeconfig),
        deleted_with=cluster.control_plane,
    )


def _trainer_images(
    config: GkeConfig, project: pulumi.Output[str], node_account: pulumi.Output[str], variants: frozenset[str]
) -> Images:
    """The image that is there already, or those that are built and pushed where the nodes may pull them."""
    if config.image.prebuilt is not None:
        return config.image.prebuilt, {}
    repository = ImageRepository(
        "registry", ImageRepositoryArgs(project=project, config=config.registry, reader=node_account)
    )
    name = pulumi.Output.concat(repository.url, f"/{config.image.name}")
    return trainer_images(name, config.image, variants)


def _console(config: GkeConfig) -> dict[str, str]:
    """Pages of Google's console."""
    base, query = "https://console.cloud.google.com", f"?project={config.project}"
    return {
        "cluster": f"{base}/kubernetes/clusters/details/{config.location}/{config.name}/details{query}",
        "logs": f"{base}/logs/query{query}",
        "quotas": f"{base}/iam-admin/quotas{query}",
    }
