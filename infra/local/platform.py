"""Builds the platform `local`: the cluster on this machine, and what jobs get of it."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes

from infra.config import LocalConfig
from infra.image.own_images import TRAINER
from infra.local import preflight
from infra.local.cluster import LocalCluster, LocalClusterArgs
from infra.local.program_image import program_reference
from infra.local.programs import BUCKET_IN_NODE
from infra.local.settings import PAUSE_IMAGE, ClusterSettings
from infra.local.trainer_image import own_image_reference, trainer_image_reference
from infra.namespace import BucketClaim, TrainingNamespace, TrainingNamespaceArgs
from infra.operators.releases import needed_releases
from infra.platform import CLAIM_URL, Platform

BUCKET_SIZE = "20Gi"
"""Nominal: the volume is a folder of this machine."""


def build_local(config: LocalConfig, owner: str, operators: frozenset[str], images: frozenset[str]) -> Platform:
    """Provision the platform for the checkout `owner`, with the images of `operators` and `images`, of ours.

    Raises ValueError, one problem a line, when this machine cannot run it.
    """
    settings = ClusterSettings(name=config.name, nodes=config.nodes, port=config.port, owner=owner)
    if problems := preflight.check_machine(settings):
        raise ValueError("\n".join(problems))
    image = trainer_image_reference()
    operator_images = {release.name: program_reference(release.name) for release in needed_releases(operators)}
    own_images = {name: own_image_reference(name) for name in sorted(images - {TRAINER})}
    cluster = LocalCluster(
        "local",
        LocalClusterArgs(
            owner=owner,
            name=config.name,
            nodes=config.nodes,
            port=config.port,
            images=[PAUSE_IMAGE, image, *operator_images.values(), *own_images.values()],
        ),
    )
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
        own_images=own_images,
        deleted_with=cluster.processes,
        images=cluster.images,
    )


def _provider(cluster: LocalCluster) -> pulumi_kubernetes.Provider:
    return pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        cluster_identifier=cluster.uid,
        # Everything in this cluster is the stack's: what an interrupted `up` left there is taken over.
        upsert_existing_objects=True,
        enable_patch_force=True,
        opts=pulumi.ResourceOptions(deleted_with=cluster.processes),
    )
