"""Settings and Cloud class of a cluster on this machine. Only `Local.build` imports Pulumi."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from infra.builtin_images import EVERY_IMAGE, TRAINER, JobLayer
from infra.cloud import Cloud, FirstPlatform
from infra.hardware import PodGroup, Scheduling
from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.local import lifecycle
from infra.local.settings import (
    MAX_NAME_LENGTH,
    PAUSE_IMAGE,
    TAKE_OVER_VARIABLE,
    ClusterSettings,
    stack_cluster,
)
from infra.operator_releases import needed_releases
from settings.kubernetes_values import check_label
from settings.types import NamespaceName, Section, with_code

if TYPE_CHECKING:
    import pulumi_kubernetes

    from infra.local.provider import LocalCluster
    from infra.platform import Platform, TrainingNamespace

BUCKET_SIZE = "20Gi"
"""Nominal size. The volume is a folder of this machine without a limit."""

_cluster_name = with_code("cluster_name", partial(check_label, limit=MAX_NAME_LENGTH))


class LocalConfig(Section):
    """Kubernetes cluster on this machine, for this stack only."""

    kind: Literal["local"]
    """Cluster on this machine."""
    name: Annotated[str, Field(max_length=MAX_NAME_LENGTH), AfterValidator(_cluster_name)] | None = Field(
        None, examples=["dev"]
    )
    """Prefix of the nodes' names, by default the stack's name; kubeconfigs call the cluster `trainyard-NAME`."""
    nodes: Annotated[int, Field(ge=1, le=8)] = 2
    """Number of nodes; each has an equal share of this machine's CPUs and memory."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port of the API server on 127.0.0.1; by default a free port, which the cluster keeps unless another program
    uses it."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, created and deleted by the stack."""


class Local(Cloud):
    """Cluster on this machine that the stack provisions."""

    first_platform = FirstPlatform(settings={"nodes": 2})
    cluster_component = "trainyard:local:LocalCluster"
    has_accelerators = False
    pulls_images = False

    def __init__(self, config: LocalConfig) -> None:
        self.config = config
        self.nodes_here = config.nodes

    @property
    def python_version(self) -> str | None:
        return "3.11"

    @property
    def built_images(self) -> frozenset[str]:
        return EVERY_IMAGE

    def cluster(self, checkout: str, stack: str) -> ClusterSettings:
        """Return the settings of the stack's cluster."""
        return stack_cluster(checkout, stack, name=self.config.name, nodes=self.config.nodes, port=self.config.port)

    def up_problems(self, checkout: str, stack: str, set_up_bytes: int = 0) -> list[str]:
        return lifecycle.check_machine(self.cluster(checkout, stack), set_up_bytes)

    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        del pool
        if hosts.accelerator:
            raise ValueError("the cluster on this machine has only CPUs")
        return Scheduling()

    async def build(self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer]) -> Platform:
        import pulumi

        from infra.local.image_store import program_reference
        from infra.local.provider import LocalCluster
        from infra.local.trainer_image import image_reference, layer_inputs
        from infra.project import project_folder

        settings = self.cluster(str(project_folder()), pulumi.get_stack())
        if problems := lifecycle.check_machine(settings):
            raise ValueError("\n".join(problems))
        # A source may change while the program runs. Pods must get the references that the nodes load.
        reference = cache(image_reference)
        operator_images = {release.name: program_reference(release.name) for release in needed_releases(operators)}
        builtin_images = map(reference, sorted(images - {TRAINER}))
        inputs_of_layers = {
            reference(layer): layer_inputs(layer) for layer in sorted(layers, key=lambda each: each.name)
        }
        cluster = LocalCluster(
            "local",
            settings=settings,
            images=[PAUSE_IMAGE, reference(TRAINER), *operator_images.values(), *builtin_images, *inputs_of_layers],
            layers=inputs_of_layers,
        )
        # While the provider starts the cluster on another core, import the Kubernetes types, the slowest import.
        await asyncio.to_thread(import_module, "infra.platform")
        from infra.platform import CLAIM_URL, Platform

        provider = _kubernetes_provider(cluster)
        training = _training_namespace(self.config.namespace, cluster, provider)
        return Platform(
            provider=provider,
            namespace=training.namespace,
            service_account=training.service_account,
            image=reference,
            bucket_url=CLAIM_URL,
            bucket_claim=training.bucket_claim,
            bucket_location=pulumi.Output.concat("file://", cluster.bucket_path),
            kubectl=pulumi.Output.concat("kubectl --kubeconfig ", cluster.kubeconfig_path, " -n ", training.namespace),
            kubeconfig_path=cluster.kubeconfig_path,
            context=settings.context,
            get_kubeconfig=pulumi.Output.concat("export KUBECONFIG=", cluster.kubeconfig_path),
            kubeconfig=cluster.kubeconfig,
            operator_images=operator_images,
            deleted_with=cluster.processes,
            node_images=cluster.images,
        )


def _kubernetes_provider(cluster: LocalCluster) -> pulumi_kubernetes.Provider:
    import pulumi
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


def _training_namespace(name: str, cluster: LocalCluster, provider: pulumi_kubernetes.Provider) -> TrainingNamespace:
    import pulumi

    from infra.local.components import BUCKET_IN_NODE
    from infra.platform import BucketClaim, TrainingNamespace, TrainingNamespaceArgs

    bucket = BucketClaim(size=BUCKET_SIZE, access_mode="ReadWriteMany", folder=BUCKET_IN_NODE)
    return TrainingNamespace(
        "training",
        TrainingNamespaceArgs(namespace=name, bucket=bucket),
        pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=cluster.processes),
    )
