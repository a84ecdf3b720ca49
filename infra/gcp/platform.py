"""Platform `gke`: its cloud components, and the components inside its cluster, such as compute classes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import (
    HostPathVolumeSourceArgs,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpecArgs,
    PersistentVolumeSpecArgs,
    VolumeResourceRequirementsArgs,
)
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.gcp.cluster import context_name
from infra.gcp.components import GkeComponents, build_components
from infra.gcp.config import GkeConfig
from infra.gcp.network import PodNetworks, PodNetworksArgs
from infra.hardware.machines import ProvisioningModel
from infra.image.cloud_image import trainer_images
from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.namespace import TrainingNamespace, TrainingNamespaceArgs
from infra.naming import stack_labels
from infra.platform import Platform, kubeconfig_path

PLACEHOLDER_SIZE = {"storage": "1Gi"}
"""The API requires a size, but a host folder has none."""
READ_ONLY = "ReadOnlyMany"


@dataclass(frozen=True, kw_only=True)
class HostFolderArgs:
    """Inputs of `HostFolder`."""

    namespace: pulumi.Input[str]
    """Namespace of the pods."""
    claim: str
    """Name of the claim and suffix of the volume's name."""
    folder: str
    """Host folder. On nodes without it, pods with the claim do not start, and their events report the reason."""


class HostFolder(pulumi.ComponentResource):
    """Volume of a host folder and its claim.

    The `restricted` Pod Security Standard rejects host paths in pods and allows claims.
    """

    claim: pulumi.Output[str]
    """Name of the claim."""

    def __init__(self, name: str, args: HostFolderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:HostFolder", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        volume_name = pulumi.Output.concat(args.namespace, "-", args.claim)
        volume = PersistentVolume(
            f"{name}-volume",
            metadata=ObjectMetaArgs(name=volume_name, labels=stack_labels()),
            spec=PersistentVolumeSpecArgs(
                capacity=PLACEHOLDER_SIZE,
                access_modes=[READ_ONLY],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name=volume_name,
                host_path=HostPathVolumeSourceArgs(path=args.folder, type="Directory"),
            ),
            opts=child,
        )
        claim = PersistentVolumeClaim(
            f"{name}-claim",
            metadata=ObjectMetaArgs(name=args.claim, namespace=args.namespace, labels=stack_labels()),
            spec=PersistentVolumeClaimSpecArgs(
                access_modes=[READ_ONLY],
                storage_class_name=volume.metadata.name,
                volume_name=volume.metadata.name,
                resources=VolumeResourceRequirementsArgs(requests=PLACEHOLDER_SIZE),
            ),
            opts=child,
        )
        self.claim = claim.metadata.name
        self.register_outputs({"claim": self.claim})


@dataclass(frozen=True, kw_only=True)
class FallbackComputeClassArgs:
    """Inputs of `FallbackComputeClass`."""

    pool: str
    """Name of the pool in the settings, and of the ComputeClass."""
    node_pools: list[list[pulumi.Output[str]]]
    """Names of the GKE node pools of each provisioning model, in fallback order."""


class FallbackComputeClass(pulumi.ComponentResource):
    """ComputeClass of a pool: jobs get nodes from the first provisioning model with capacity.

    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """

    def __init__(self, name: str, args: FallbackComputeClassArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:FallbackOrder", name, None, opts)
        CustomResource(
            f"{name}-class",
            api_version="cloud.google.com/v1",
            kind="ComputeClass",
            metadata=ObjectMetaArgs(name=args.pool, labels=stack_labels()),
            spec={
                "priorities": [{"nodepools": names} for names in args.node_pools],
                "whenUnsatisfiable": "DoNotScaleUp",
                "nodePoolAutoCreation": {"enabled": False},
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


Images = tuple[pulumi.Input[str], dict[str, pulumi.Input[str]]]
"""Trainer image, and further images by name."""
IDENTITY_ANNOTATION = "iam.gke.io/gcp-service-account"


def build_gke(config: GkeConfig, images: frozenset[str]) -> Platform:
    """Provision the platform for jobs, with the builtin images `images`."""
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
        PodNetworks("pod-networks", PodNetworksArgs(fabric=fabric, networks=network.networks), in_cluster)
    _fallback_classes(cloud, in_cluster)
    return _platform(config, cloud, provider, in_cluster, _trainer_images(config, cloud, images))


def _fallback_classes(cloud: GkeComponents, in_cluster: pulumi.ResourceOptions) -> None:
    """Create a ComputeClass for each pool with a fallback order."""
    for pool in dict.fromkeys(plan.pool.name for plan in cloud.plans if plan.has_fallback):
        models: dict[ProvisioningModel, list[pulumi.Output[str]]] = {}
        for plan in cloud.plans:
            if plan.pool.name == pool:
                models.setdefault(plan.model, []).append(cloud.pools[plan.name].name)
        args = FallbackComputeClassArgs(pool=pool, node_pools=list(models.values()))
        before = pulumi.Alias(name=f"{pool}-ladder", type_="trainyard:gcp:CapacityLadder")
        opts = pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(aliases=[before]))
        FallbackComputeClass(f"{pool}-fallback", args, opts)


def _platform(
    config: GkeConfig,
    cloud: GkeComponents,
    provider: pulumi_kubernetes.Provider,
    in_cluster: pulumi.ResourceOptions,
    images: Images,
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
            HostFolder(nccl_environment.claim, folder, in_cluster)
    context = context_name(config)
    path = kubeconfig_path(context)
    endpoint = "" if config.authorized_networks else " --dns-endpoint"
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=images[0],
        builtin_images=images[1],
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


def _trainer_images(config: GkeConfig, cloud: GkeComponents, variants: frozenset[str]) -> Images:
    """Return the prebuilt image, or the images that are built and pushed to the repository."""
    if cloud.repository is None:
        assert config.image.prebuilt is not None
        return config.image.prebuilt, {}
    name = pulumi.Output.concat(cloud.repository.url, f"/{config.image.name}")
    return trainer_images(name, config.image, variants)


def _console(config: GkeConfig) -> dict[str, str]:
    """Return topic -> page of Google's console."""
    base, query = "https://console.cloud.google.com", f"?project={config.project}"
    return {
        "cluster": f"{base}/kubernetes/clusters/details/{config.location}/{config.name}/details{query}",
        "logs": f"{base}/logs/query{query}",
        "quotas": f"{base}/iam-admin/quotas{query}",
    }
