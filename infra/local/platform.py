"""Platform `local`: the objects in the cluster on this machine, and the values that jobs use."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes

from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.local.cluster import LocalCluster
from infra.local.components import BUCKET_IN_NODE
from infra.local.config import LocalConfig
from infra.local.local_cluster_resource import LocalMachine
from infra.local.settings import TAKE_OVER_VARIABLE
from infra.namespace import BucketClaim, TrainingNamespace, TrainingNamespaceArgs
from infra.platform import CLAIM_URL, Platform

BUCKET_SIZE = "20Gi"
"""Nominal size. The volume is a folder of this machine without a limit."""


def build_local(config: LocalConfig, machine: LocalMachine) -> Platform:
    """Provision the platform in the cluster of this machine."""
    cluster = machine.cluster
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
        image=machine.image,
        bucket_url=CLAIM_URL,
        bucket_claim=training.bucket_claim,
        bucket_location=pulumi.Output.concat("file://", cluster.bucket_path),
        kubectl=pulumi.Output.concat("kubectl --kubeconfig ", cluster.kubeconfig_path, " -n ", training.namespace),
        kubeconfig_path=cluster.kubeconfig_path,
        context=machine.context,
        get_kubeconfig=pulumi.Output.concat("export KUBECONFIG=", cluster.kubeconfig_path),
        kubeconfig=cluster.kubeconfig,
        operator_images=machine.operator_images,
        own_images=machine.own_images,
        deleted_with=cluster.processes,
        images=cluster.images,
    )


def _provider(cluster: LocalCluster) -> pulumi_kubernetes.Provider:
    return pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        cluster_identifier=cluster.uid,
        opts=pulumi.ResourceOptions(
            deleted_with=cluster.processes,
            # The stack owns everything in this cluster, so fields that an interrupted `up` has set are not conflicts.
            env_var_mappings=PROVIDER_ENVIRONMENT | {TAKE_OVER_VARIABLE: "PULUMI_K8S_ENABLE_PATCH_FORCE"},
        ),
    )
