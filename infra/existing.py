"""Existing cluster in a kubeconfig: its settings, Cloud and Platform. Imports Pulumi only to provision."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from infra.builtin_images import JobLayer
from infra.capacity import tolerate
from infra.cloud import Cloud
from infra.hardware import PodGroup, Scheduling, gpus, tpus
from infra.kubeconfig import PROVIDER_ENVIRONMENT, contexts, kubeconfig_files
from infra.naming import KUEUE
from settings.problem import UNDEFINED, Invalid, Problem, token_kind
from settings.types import DnsLabel, ExistingClusterNamespace, Image, Memory, Section, namespace_problem

if TYPE_CHECKING:
    from infra.platform import Platform


def _bucket_url(value: str) -> str:
    scheme, _, rest = value.partition("://")
    if scheme not in ("gs", "s3") or not rest.strip("/"):
        raise Invalid(
            "bucket_url", "must be the URL of a bucket, gs:// or s3://; write for example 's3://team-checkpoints/runs'"
        )
    if noun := token_kind(value):
        raise Invalid(
            "bucket_url_secret",
            f"is {noun} in plain text; write the URL without it, and put the credentials in the jobs' `secrets`",
        )
    return value.rstrip("/")


class ClaimConfig(Section):
    """Bucket in a persistent volume claim of the cluster, mounted at /bucket."""

    kind: Literal["claim"]
    """Persistent volume claim."""
    size: Memory = "20Gi"
    """Requested storage."""
    storage_class: DnsLabel | None = None
    """Storage class; by default the cluster's default class."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """Access mode: `ReadWriteOnce` for a cluster of one node, `ReadWriteMany` for hosts on several nodes."""


class UrlConfig(Section):
    """Bucket of an object store, which the trainer image opens by its URL."""

    kind: Literal["url"]
    """Object store."""
    url: Annotated[str, AfterValidator(_bucket_url)] = Field(examples=["s3://team-checkpoints/runs"])
    """URL of the bucket, with an optional prefix."""


BucketConfig = Annotated[ClaimConfig | UrlConfig, Field(discriminator="kind")]


class KubeconfigConfig(Section):
    """Existing cluster (kind, k3d, minikube, Docker Desktop, or another) in a kubeconfig."""

    kind: Literal["kubeconfig"]
    """Existing cluster."""
    context: Annotated[str, Field(min_length=1)] = Field(examples=["kind-kind"])
    """Name of the context in the kubeconfig."""
    kubeconfig: str | None = None
    """Path of the kubeconfig file; by default the files that kubectl reads, `$KUBECONFIG` or else `~/.kube/config`."""
    namespace: ExistingClusterNamespace = "training"
    """Kubernetes namespace of the jobs, for this stack only."""
    create_namespace: bool = True
    """Create the namespace, and delete it with all its objects when the stack is destroyed; `false` uses an existing
    namespace and keeps its labels and other objects. A change to `false` deletes a namespace that the stack created."""
    image: Image = Field(examples=["example.com/team/trainer:1.0"])
    """Trainer image that the cluster can pull, built from `trainer/Dockerfile`; jobs on XLA must set their own
    image, built from `trainer/Dockerfile.xla`."""
    bucket: BucketConfig = ClaimConfig(kind="claim")
    """Storage of checkpoints and metrics."""
    operators: Literal["install", "present"] = "install"
    """`install` installs the operators that the jobs need, except Kueue, at Trainyard's versions (docs/operators.md).
    `present` uses the operators of the cluster."""


class Existing(Cloud):
    """Cluster that the stack neither creates nor deletes."""

    is_shared = True

    def __init__(self, config: KubeconfigConfig) -> None:
        self.config = config
        self.context, self.kubeconfig = config.context, config.kubeconfig
        self.scheme = config.bucket.url.partition("://")[0] if isinstance(config.bucket, UrlConfig) else ""

    def operators(self, required: frozenset[str]) -> frozenset[str]:
        # Do not install Kueue: the cluster's owner decides which part of the cluster the queues can use.
        return frozenset() if self.config.operators == "present" else required - {KUEUE}

    def problems(self) -> list[Problem]:
        namespace = self.config.namespace
        if self.config.create_namespace and (message := namespace_problem(namespace)):
            return [
                Problem(
                    "kubeconfig.namespace.reserved",
                    ("platform", "namespace"),
                    f"{message}, or add `create_namespace: false` if it already exists",
                    namespace,
                )
            ]
        return []

    def machine_problems(self) -> list[Problem]:
        """Return a problem if no kubeconfig has the context."""
        files = kubeconfig_files(self.config.kubeconfig)
        try:
            names = contexts(files)
        except ValueError as error:
            return [_problem("kubeconfig", str(error), self.config.kubeconfig or UNDEFINED)]
        if self.config.context in names:
            return []
        paths = ", ".join(map(str, files))
        if not any(file.exists() for file in files):
            if self.config.kubeconfig:
                message = "does not exist; write the path of the file that has the cluster's context"
                return [_problem("kubeconfig", message, self.config.kubeconfig)]
            verb = "does" if len(files) == 1 else "do"
            remedy = "create the cluster, or set platform.kubeconfig"
            message = f"is not a context, because {paths} {verb} not exist; {remedy}"
            return [_problem("context", message, self.config.context)]
        if names:
            message = f"is not a context in {paths}; write one of {', '.join(names)}"
        else:
            message = f"is not a context, because {paths} contains no context; set platform.kubeconfig to another file"
        return [_problem("context", message, self.config.context)]

    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        del pool
        if hosts.accelerator is None:
            return Scheduling()
        resource = tpus.RESOURCE if hosts.tpu else gpus.RESOURCE
        return Scheduling(
            # GPU nodes have no standard label. For TPUs, `pod_template` selects nodes by the labels of GKE.
            tolerations=(tolerate(resource),),
            accelerator_resource=resource,
        )

    async def build(self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer]) -> Platform:
        del operators, images, layers
        return _use_existing_cluster(self.config)


def _problem(key: str, message: str, value: object) -> Problem:
    return Problem("kubeconfig.context.unknown", ("platform", key), message, value)


def _use_existing_cluster(config: KubeconfigConfig) -> Platform:
    """Create the jobs' namespace in the cluster of a kubeconfig's context. Return the platform."""
    import pulumi
    import pulumi_kubernetes

    from infra.platform import CLAIM_URL, BucketClaim, Platform, TrainingNamespace, TrainingNamespaceArgs

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
        image=lambda _image: config.image,
        bucket_url=url,
        bucket_claim=training.bucket_claim,
        bucket_location=url,
        kubectl=pulumi.Output.concat(f"kubectl {options} -n ", training.namespace),
        kubeconfig_path=files,
        context=config.context,
        get_kubeconfig=f"{export}kubectl config use-context {config.context}",
    )
