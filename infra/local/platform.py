"""Platform `local`: the cluster on this machine with its images, and the jobs' namespace in it."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

import pulumi

from infra.builtin_images import TRAINER, JobLayer
from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.local import lifecycle
from infra.local.cloud import LocalConfig
from infra.local.components import BUCKET_IN_NODE
from infra.local.image_store import program_reference
from infra.local.provider import LocalCluster
from infra.local.settings import PAUSE_IMAGE, TAKE_OVER_VARIABLE, ClusterSettings
from infra.local.trainer_image import builtin_image_reference, layer_inputs, layer_reference, trainer_image_reference
from infra.operator_releases import needed_releases

if TYPE_CHECKING:
    import pulumi_kubernetes

    from infra.platform import Platform


BUCKET_SIZE = "20Gi"
"""Nominal size. The volume is a folder of this machine without a limit."""


async def build_local(
    config: LocalConfig,
    settings: ClusterSettings,
    operators: frozenset[str],
    images: frozenset[str],
    layers: frozenset[JobLayer] = frozenset(),
) -> Platform:
    """Provision the cluster with the images of `operators`, the builtin images `images` and the jobs' `layers`.

    Raises ValueError, with one problem per line, if this machine cannot run the cluster.
    """
    if problems := lifecycle.check_machine(settings):
        raise ValueError("\n".join(problems))
    image = trainer_image_reference()
    operator_images = {release.name: program_reference(release.name) for release in needed_releases(operators)}
    builtin_images = {name: builtin_image_reference(name) for name in sorted(images - {TRAINER})}
    named_layers = {layer.name: layer for layer in sorted(layers, key=lambda layer: layer.name)}
    layer_images = {name: layer_reference(layer) for name, layer in named_layers.items()}
    further_images = [*operator_images.values(), *builtin_images.values(), *layer_images.values()]
    cluster = LocalCluster(
        "local",
        settings=settings,
        images=[PAUSE_IMAGE, image, *further_images],
        layers={layer_images[name]: layer_inputs(layer) for name, layer in named_layers.items()},
    )
    # While the provider starts the cluster on another core, import the Kubernetes types, the slowest import.
    await asyncio.to_thread(import_module, "infra.platform")
    from infra.platform import CLAIM_URL, BucketClaim, Platform, TrainingNamespace, TrainingNamespaceArgs

    provider = _provider(cluster)
    training = TrainingNamespace(
        "training",
        TrainingNamespaceArgs(
            namespace=config.namespace,
            bucket=BucketClaim(size=BUCKET_SIZE, access_mode="ReadWriteMany", folder=BUCKET_IN_NODE),
        ),
        pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=cluster.processes),
    )
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=image,
        bucket_url=CLAIM_URL,
        bucket_claim=training.bucket_claim,
        bucket_location=pulumi.Output.concat("file://", cluster.bucket_path),
        kubectl=pulumi.Output.concat("kubectl --kubeconfig ", cluster.kubeconfig_path, " -n ", training.namespace),
        kubeconfig_path=cluster.kubeconfig_path,
        context=settings.context,
        get_kubeconfig=pulumi.Output.concat("export KUBECONFIG=", cluster.kubeconfig_path),
        kubeconfig=cluster.kubeconfig,
        operator_images=operator_images,
        builtin_images=builtin_images | layer_images,
        deleted_with=cluster.processes,
        images=cluster.images,
    )


def _provider(cluster: LocalCluster) -> pulumi_kubernetes.Provider:
    import pulumi_kubernetes

    return pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        cluster_identifier=cluster.uid,
        opts=pulumi.ResourceOptions(
            deleted_with=cluster.processes,
            # Take over fields that an interrupted `up` has set: the stack owns everything in this cluster.
            env_var_mappings=PROVIDER_ENVIRONMENT | {TAKE_OVER_VARIABLE: "PULUMI_K8S_ENABLE_PATCH_FORCE"},
        ),
    )
