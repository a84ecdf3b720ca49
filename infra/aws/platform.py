"""Platform `eks`: its cloud components, and the components inside its cluster."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes

from infra.aws.cluster import context_name
from infra.aws.components import EksComponents, build_components
from infra.aws.config import EksConfig
from infra.aws.device_plugins import DevicePlugins, DevicePluginsArgs
from infra.image.cloud_image import trainer_images
from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.namespace import TrainingNamespace, TrainingNamespaceArgs
from infra.platform import Platform, kubeconfig_path

Images = tuple[pulumi.Input[str], dict[str, pulumi.Input[str]]]
"""Trainer image, and further images by name."""


def build_eks(config: EksConfig, images: frozenset[str]) -> Platform:
    """Provision the platform for jobs, with the builtin images `images`."""
    cloud = build_components(config)
    control_plane = cloud.cluster.control_plane
    provider = pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cloud.cluster.kubeconfig,
        cluster_identifier=control_plane.arn,
        opts=pulumi.ResourceOptions(
            depends_on=[cloud.system], deleted_with=control_plane, env_var_mappings=PROVIDER_ENVIRONMENT
        ),
    )
    in_cluster = pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=control_plane)
    plugins = DevicePluginsArgs(
        gpus=any(plan.machine.gpus for plan in cloud.groups),
        efa_pools=tuple(plan.name for plan in cloud.groups if plan.efa),
    )
    DevicePlugins("device-plugins", plugins, in_cluster)
    return _platform(config, cloud, provider, in_cluster, _trainer_images(config, cloud, images))


def _platform(
    config: EksConfig,
    cloud: EksComponents,
    provider: pulumi_kubernetes.Provider,
    in_cluster: pulumi.ResourceOptions,
    images: Images,
) -> Platform:
    """Create the jobs' namespace. Return the properties of the platform that jobs use."""
    training = TrainingNamespace("training", TrainingNamespaceArgs(namespace=config.namespace), in_cluster)
    url = pulumi.Output.all(cloud.bucket.name, cloud.identity.ready).apply(
        lambda values: f"s3://{values[0]}/{config.bucket.prefix}"
    )
    context = context_name(config)
    path = kubeconfig_path(context)
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=images[0],
        builtin_images=images[1],
        bucket_url=url,
        bucket_claim=None,
        bucket_location=url,
        kubectl=pulumi.Output.concat(f"kubectl --kubeconfig {path} -n ", training.namespace),
        kubeconfig_path=path,
        context=context,
        get_kubeconfig=f"aws eks update-kubeconfig --region {config.region} --name {config.name}",
        console=_console(config),
        kubeconfig=pulumi.Output.secret(cloud.cluster.kubeconfig),
        deleted_with=cloud.cluster.control_plane,
    )


def _trainer_images(config: EksConfig, cloud: EksComponents, variants: frozenset[str]) -> Images:
    """Return the prebuilt image, or the images that are built and pushed to the repository."""
    if cloud.repository is None:
        assert config.image.prebuilt is not None
        return config.image.prebuilt, {}
    return trainer_images(cloud.repository.url, config.image, variants)


def _console(config: EksConfig) -> dict[str, str]:
    """Return topic -> page of AWS's console."""
    base = f"https://{config.region}.console.aws.amazon.com"
    return {
        "cluster": f"{base}/eks/home?region={config.region}#/clusters/{config.name}",
        "logs": f"{base}/cloudwatch/home?region={config.region}#logsV2:log-groups",
        "quotas": f"{base}/servicequotas/home?region={config.region}",
    }
