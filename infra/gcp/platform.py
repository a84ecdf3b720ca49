"""Platform `gke`: components in the cloud, then components inside the cluster, such as compute classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.cloud_image import CloudImages
from infra.gcp.cluster import GkeCluster, GkeClusterArgs, NodeIdentity, WorkloadIdentity, context_name
from infra.gcp.config import GkeConfig
from infra.gcp.network import AcceleratorNetwork, Network, PodNetworks
from infra.gcp.node_pool import AcceleratorNodePool, AcceleratorNodePoolArgs, SystemNodePool
from infra.gcp.pools import Fabric, NodePoolPlan, fabric_of, machine_fabric, node_pools
from infra.gcp.storage import CheckpointBucket, ImageRepository
from infra.hardware.machines import ProvisioningModel
from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.naming import stack_labels
from infra.platform import (
    SERVICE_ACCOUNT,
    HostFolder,
    HostFolderArgs,
    Platform,
    TrainingNamespace,
    TrainingNamespaceArgs,
    kubeconfig_path,
)

API_NAMES = ("artifactregistry", "compute", "container", "iam", "logging", "monitoring", "storage")
"""APIs that every stack enables, without their suffix `.googleapis.com`."""
STREAMING_API = "containerfilesystem"
"""API of image streaming: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements"""
IDENTITY_ANNOTATION = "iam.gke.io/gcp-service-account"

ClusterAndNodes = tuple[GkeCluster, SystemNodePool, Mapping[str, AcceleratorNodePool]]


class ProjectServices(pulumi.ComponentResource):
    """Enabled APIs. They stay enabled after the stack is destroyed, because other users may need them."""

    project: pulumi.Output[str]
    """Project id, known once all APIs are enabled. Resources that need the APIs use this output."""

    def __init__(
        self, name: str, *, project: str, apis: Sequence[str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:gcp:ProjectServices", name, None, opts)
        services = [
            gcp.projects.Service(
                f"{name}-{service}",
                project=project,
                service=f"{service}.googleapis.com",
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in apis
        ]
        enabled = pulumi.Output.all(*(service.service for service in services))
        self.project = enabled.apply(lambda _names: project)
        self.register_outputs({"project": self.project})


@dataclass(frozen=True, kw_only=True)
class GkeComponents:
    """Cloud components that the rest of the platform uses."""

    cluster: GkeCluster
    system: SystemNodePool
    """Nodes for system pods. Resources in the cluster wait for these nodes."""
    plans: list[NodePoolPlan]
    pools: Mapping[str, AcceleratorNodePool]
    """The pools for jobs by their names in GKE."""
    fabrics: list[tuple[Fabric, AcceleratorNetwork]]
    """Networks between GPUs of different hosts, each with its fabric."""
    identity: WorkloadIdentity
    bucket: CheckpointBucket
    repository: ImageRepository | None
    """Repository of the trainer image; None if the image is prebuilt."""


def build_components(config: GkeConfig) -> GkeComponents:
    """Provision all cloud components. Return the components that the rest of the platform uses."""
    apis = (*API_NAMES, STREAMING_API) if config.image_streaming else API_NAMES
    project = ProjectServices("services", project=config.project, apis=apis).project
    plans = node_pools(config)
    account = NodeIdentity("nodes", project=project, config=config)
    fabrics = _fabrics(config, project, plans)
    cluster, system, pools = _cluster(config, project, account, plans, fabrics)
    identity = WorkloadIdentity(
        "jobs",
        project=project,
        cluster=config.name,
        workload_pool=cluster.workload_pool,
        namespace=config.namespace,
        service_account=SERVICE_ACCOUNT,
    )
    bucket = CheckpointBucket(
        "bucket",
        project=project,
        cluster=config.name,
        location=config.region,
        config=config.bucket,
        member=identity.member,
    )
    repository = None
    if config.image.prebuilt is None:
        repository = ImageRepository("registry", project=project, config=config, reader=account.email)
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
    """Provision the networks between GPUs of different hosts. Return zone -> fabric and its networks."""
    networks = {}
    for zone, fabric in {plan.zones[0]: fabric for plan in plans if (fabric := fabric_of(plan))}.items():
        network = AcceleratorNetwork("fabric", project=project, config=config, zone=zone, fabric=fabric)
        networks[zone] = fabric, network
    return networks


def _cluster(
    config: GkeConfig,
    project: pulumi.Output[str],
    account: NodeIdentity,
    plans: list[NodePoolPlan],
    fabrics: Mapping[str, tuple[Fabric, AcceleratorNetwork]],
) -> ClusterAndNodes:
    """Provision the control plane in its own network, and its nodes."""
    network = Network("network", project=project, config=config)
    cluster = GkeCluster(
        "cluster",
        GkeClusterArgs(
            project=project,
            config=config,
            network=network.network,
            subnetwork=network.subnetwork,
            node_service_account=account.email,
            multi_networking=any(machine_fabric(plan.machine) for plan in plans),
        ),
    )
    system = SystemNodePool("system", project=project, cluster=cluster.name, account=account, config=config)
    pools = {
        plan.name: AcceleratorNodePool(
            plan.name,
            AcceleratorNodePoolArgs(
                project=project,
                cluster=_name_after_networks(fabrics[plan.zones[0]][1], cluster) if fabric_of(plan) else cluster.name,
                service_account=account.email,
                config=config,
                plan=plan,
                networks=fabrics[plan.zones[0]][1].names if fabric_of(plan) else [],
                # If the system nodes get no capacity, the update fails before expensive nodes start.
                after=[system],
            ),
        )
        for plan in plans
    }
    return cluster, system, pools


def _name_after_networks(network: AcceleratorNetwork, cluster: GkeCluster) -> pulumi.Output[str]:
    """Return the cluster's name as an output that depends on the fabric's networks.

    Google does not delete a subnet with nodes, so Pulumi must delete a pool before it replaces the networks. Pulumi
    does so because a change of the pool's input `cluster` replaces the pool, and this output depends on the networks:
    https://www.pulumi.com/docs/iac/concepts/resources/options/deletebeforereplace/
    """
    return pulumi.Output.all(cluster.name, network.networks).apply(lambda values: str(values[0]))


def build_gke(config: GkeConfig) -> Platform:
    """Provision the components in the cloud and inside the cluster. Return the platform."""
    cloud = build_components(config)
    control_plane = cloud.cluster.control_plane
    provider = pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cloud.cluster.kubeconfig,
        cluster_identifier=control_plane.id,
        opts=pulumi.ResourceOptions(
            depends_on=[cloud.system], deleted_with=control_plane, env_var_mappings=PROVIDER_ENVIRONMENT
        ),
    )
    in_cluster = pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=control_plane)
    for fabric, network in cloud.fabrics:
        PodNetworks("pod-networks", fabric=fabric, networks=network.networks, opts=in_cluster)
    _fallback_classes(cloud, in_cluster)
    return _platform(config, cloud, provider, in_cluster)


class FallbackComputeClass(pulumi.ComponentResource):
    """ComputeClass of a pool: jobs get nodes from the first provisioning model with capacity.

    `node_pools` are the GKE node pools of each provisioning model, in fallback order.

    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """

    def __init__(
        self,
        name: str,
        *,
        pool: str,
        node_pools: list[list[pulumi.Output[str]]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:FallbackOrder", name, None, opts)
        CustomResource(
            f"{name}-class",
            api_version="cloud.google.com/v1",
            kind="ComputeClass",
            metadata=ObjectMetaArgs(name=pool, labels=stack_labels()),
            spec={
                "priorities": [{"nodepools": names} for names in node_pools],
                "whenUnsatisfiable": "DoNotScaleUp",
                "nodePoolAutoCreation": {"enabled": False},
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _fallback_classes(cloud: GkeComponents, in_cluster: pulumi.ResourceOptions) -> None:
    """Create a ComputeClass for each pool with a fallback order."""
    for pool in dict.fromkeys(plan.pool.name for plan in cloud.plans if plan.has_fallback):
        models: dict[ProvisioningModel, list[pulumi.Output[str]]] = {}
        for plan in cloud.plans:
            if plan.pool.name == pool:
                models.setdefault(plan.model, []).append(cloud.pools[plan.name].name)
        former_name = pulumi.Alias(name=f"{pool}-ladder", type_="trainyard:gcp:CapacityLadder")
        opts = pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(aliases=[former_name]))
        FallbackComputeClass(f"{pool}-fallback", pool=pool, node_pools=list(models.values()), opts=opts)


def _platform(
    config: GkeConfig,
    cloud: GkeComponents,
    provider: pulumi_kubernetes.Provider,
    in_cluster: pulumi.ResourceOptions,
) -> Platform:
    """Create the jobs' namespace. Return the properties of the platform that jobs use."""
    training = TrainingNamespace(
        "training",
        TrainingNamespaceArgs(
            namespace=config.namespace, account_annotations={IDENTITY_ANNOTATION: cloud.identity.email}
        ),
        in_cluster,
    )
    for fabric, _network in cloud.fabrics:
        if nccl_environment := fabric.nccl_environment:
            folder = HostFolderArgs(
                namespace=training.namespace, claim=nccl_environment.claim, folder=nccl_environment.folder
            )
            former_type = pulumi.Alias(type_="trainyard:gcp:HostFolder")
            opts = pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(aliases=[former_type]))
            HostFolder(nccl_environment.claim, folder, opts)
    repository = pulumi.Output.concat(cloud.repository.url, f"/{config.image.name}") if cloud.repository else ""
    context = context_name(config)
    path = kubeconfig_path(context)
    endpoint = "" if config.authorized_networks else " --dns-endpoint"
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=CloudImages(repository, config.image).reference,
        bucket_url=cloud.bucket.url,
        bucket_claim=None,
        bucket_location=cloud.bucket.url,
        kubectl=pulumi.Output.concat(f"kubectl --kubeconfig {path} -n ", training.namespace),
        kubeconfig_path=path,
        context=context,
        get_kubeconfig=(
            f"gcloud container clusters get-credentials {config.name} --location {config.location} "
            f"--project {config.project}{endpoint}"
        ),
        console=_console(config),
        kubeconfig=pulumi.Output.secret(cloud.cluster.kubeconfig),
        deleted_with=cloud.cluster.control_plane,
    )


def _console(config: GkeConfig) -> dict[str, str]:
    base, query = "https://console.cloud.google.com", f"?project={config.project}"
    return {
        "cluster": f"{base}/kubernetes/clusters/details/{config.location}/{config.name}/details{query}",
        "logs": f"{base}/logs/query{query}",
        "quotas": f"{base}/iam-admin/quotas{query}",
    }
