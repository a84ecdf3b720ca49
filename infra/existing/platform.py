"""Platform `kubeconfig`: the jobs' namespace in an existing cluster."""

from __future__ import annotations

import os

import pulumi
import pulumi_kubernetes

from infra.existing.config import ClaimConfig, KubeconfigConfig
from infra.kubeconfig import PROVIDER_ENVIRONMENT, kubeconfig_files
from infra.namespace import BucketClaim, TrainingNamespace, TrainingNamespaceArgs
from infra.platform import CLAIM_URL, Platform


def use_existing_cluster(config: KubeconfigConfig) -> Platform:
    """Create the jobs' namespace in the cluster of a kubeconfig's context. Return the platform."""
    files = os.pathsep.join(map(str, kubeconfig_files(config.kubeconfig)))
    path = files if config.kubeconfig else None
    provider = pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=path,
        context=config.context,
        opts=pulumi.ResourceOptions(env_var_mappings=PROVIDER_ENVIRONMENT),
    )
    claim, url = None, CLAIM_URL
    if isinstance(config.bucket, ClaimConfig):
        claim = BucketClaim(
            size=config.bucket.size,
            access_mode=config.bucket.access_mode,
            storage_class=config.bucket.storage_class,
        )
    else:
        url = config.bucket.url
    training = TrainingNamespace(
        "training",
        TrainingNamespaceArgs(namespace=config.namespace, is_present=not config.create_namespace, bucket=claim),
        pulumi.ResourceOptions(providers={"kubernetes": provider}),
    )
    export = f"export KUBECONFIG={path} && " if path else ""
    options = f"--kubeconfig {path} --context {config.context}" if path else f"--context {config.context}"
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=config.image,
        bucket_url=url,
        bucket_claim=training.bucket_claim,
        bucket_location=url,
        kubectl=pulumi.Output.concat(f"kubectl {options} -n ", training.namespace),
        kubeconfig_path=files,
        context=config.context,
        get_kubeconfig=f"{export}kubectl config use-context {config.context}",
    )
