"""Builds the platform `eks` from its components: what is made, in which order, and what jobs get of it."""

from __future__ import annotations

import pulumi
import pulumi_aws
import pulumi_kubernetes

from infra.aws.cluster import EksCluster, EksClusterArgs, context_name
from infra.aws.config import EksConfig
from infra.aws.device_plugins import DevicePlugins, DevicePluginsArgs
from infra.aws.identity import ServiceRole, ServiceRoleArgs, WorkloadIdentity, WorkloadIdentityArgs
from infra.aws.network import Network, NetworkArgs
from infra.aws.node_pool import NodeGroup, NodeGroupArgs
from infra.aws.pools import node_groups
from infra.aws.registry import ImageRepository, ImageRepositoryArgs
from infra.aws.storage import CheckpointBucket, CheckpointBucketArgs
from infra.cloud_image import trainer_images
from infra.hardware.ec2 import ec2_machine
from infra.namespace import SERVICE_ACCOUNT, TrainingNamespace, TrainingNamespaceArgs
from infra.naming import CLOUD_LABELS
from infra.platform import Platform, kubeconfig_path

Images = tuple[pulumi.Input[str], dict[str, pulumi.Input[str]]]
"""The trainer's image, and further ones by name."""
NODE_POLICIES = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
"""https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html"""


def build_eks(config: EksConfig, images: frozenset[str] = frozenset()) -> Platform:
    """Provision the platform for jobs that need, of Trainyard's own images, `images`."""
    aws = pulumi_aws.Provider(
        "aws",
        region=config.region,
        allowed_account_ids=None if config.account is None else [config.account],
        default_tags=pulumi_aws.ProviderDefaultTagsArgs(tags=CLOUD_LABELS),
    )
    ours = pulumi.ResourceOptions(providers={"aws": aws})
    network = Network("network", NetworkArgs(config=config), ours)
    cluster = EksCluster("cluster", EksClusterArgs(config=config, private_subnets=network.private_subnets), ours)
    role = ServiceRole("nodes", ServiceRoleArgs(service="ec2.amazonaws.com", policies=NODE_POLICIES), ours)
    system = _system(config, network, cluster, role, ours)
    cluster.add_workload_addons("cluster", system)
    provider = pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        cluster_identifier=cluster.control_plane.arn,
        opts=pulumi.ResourceOptions(depends_on=[system], deleted_with=cluster.control_plane),
    )
    inside = pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=cluster.control_plane)
    groups = node_groups(config)
    for plan in groups:
        NodeGroup(
            plan.name,
            NodeGroupArgs(
                # After the system's nodes, so that nothing dear has begun when those cannot be had.
                cluster=pulumi.Output.all(cluster.name, system.ready).apply(lambda values: str(values[0])),
                config=config,
                machine=plan.machine,
                nodes=plan.nodes,
                subnets=[network.private_subnets[zone] for zone in plan.zones],
                security_group=cluster.security_group,
                role=role.arn,
                pool=plan.name,
                plan=plan,
            ),
            ours,
        )
    plugins = DevicePluginsArgs(gpus=any(plan.machine.gpus for plan in groups), efa=any(plan.efa for plan in groups))
    DevicePlugins("device-plugins", plugins, inside)
    return _platform(config, cluster, provider, inside, ours, _trainer_images(config, ours, images))


def _system(
    config: EksConfig, network: Network, cluster: EksCluster, role: ServiceRole, ours: pulumi.ResourceOptions
) -> NodeGroup:
    """The nodes of what is not training."""
    return NodeGroup(
        "system",
        NodeGroupArgs(
            cluster=cluster.name,
            config=config,
            machine=ec2_machine(config.system_pool.machine_type),
            nodes=config.system_pool.nodes,
            subnets=list(network.private_subnets.values()),
            security_group=cluster.security_group,
            role=role.arn,
            pool="system",
        ),
        ours,
    )


def _platform(
    config: EksConfig,
    cluster: EksCluster,
    provider: pulumi_kubernetes.Provider,
    inside: pulumi.ResourceOptions,
    ours: pulumi.ResourceOptions,
    images: Images,
) -> Platform:
    """What jobs get: who they are, their bucket, their image."""
    bucket = CheckpointBucket("bucket", CheckpointBucketArgs(cluster=config.name, config=config.bucket), ours)
    identity = WorkloadIdentity(
        "jobs",
        WorkloadIdentityArgs(
            cluster=cluster.name,
            namespace=config.namespace,
            service_account=SERVICE_ACCOUNT,
            bucket_arn=bucket.arn,
            prefix=config.bucket.prefix,
        ),
        ours,
    )
    training = TrainingNamespace("training", TrainingNamespaceArgs(namespace=config.namespace), inside)
    url = pulumi.Output.all(bucket.name, identity.ready).apply(
        lambda values: f"s3://{values[0]}/{config.bucket.prefix}"
    )
    context = context_name(config)
    path = kubeconfig_path(context)
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=images[0],
        own_images=images[1],
        bucket_url=url,
        bucket_claim=None,
        bucket_location=url,
        kubectl=pulumi.Output.concat(f"kubectl --kubeconfig {path} -n ", training.namespace),
        kubeconfig_path=path,
        context=context,
        get_kubeconfig=f"aws eks update-kubeconfig --region {config.region} --name {config.name}",
        console=_console(config),
        kubeconfig=pulumi.Output.secret(cluster.kubeconfig),
        deleted_with=cluster.control_plane,
    )


def _trainer_images(config: EksConfig, ours: pulumi.ResourceOptions, variants: frozenset[str]) -> Images:
    """The image that is there already, or those that are built and pushed where the nodes may pull them."""
    if config.image.prebuilt is not None:
        return config.image.prebuilt, {}
    args = ImageRepositoryArgs(name=f"{config.name}/{config.image.name}", config=config.registry)
    repository = ImageRepository("registry", args, ours)
    return trainer_images(repository.url, config.image, variants)


def _console(config: EksConfig) -> dict[str, str]:
    """Pages of the console of AWS."""
    base = f"https://{config.region}.console.aws.amazon.com"
    return {
        "cluster": f"{base}/eks/home?region={config.region}#/clusters/{config.name}",
        "logs": f"{base}/cloudwatch/home?region={config.region}#logsV2:log-groups",
        "quotas": f"{base}/servicequotas/home?region={config.region}",
    }
