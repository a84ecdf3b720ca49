"""Settings of an existing cluster. No Pulumi."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.settings.clear_secrets import shape
from infra.settings.types import DnsLabel, GivenNamespaceName, Image, Memory, Section


def _bucket_url(value: str) -> str:
    scheme, _, rest = value.partition("://")
    if scheme not in ("gs", "s3") or not rest.strip("/"):
        raise ValueError("must be the URL of a bucket, gs:// or s3://; write for example 's3://team-checkpoints/runs'")
    if found := shape(value):
        raise ValueError(
            f"is {found} in clear; write the URL without it, and `secrets:` in the jobs with what opens the bucket"
        )
    return value.rstrip("/")


class ClaimConfig(Section):
    """A bucket that is a persistent volume claim in the cluster, mounted at /bucket."""

    kind: Literal["claim"]
    """A persistent volume claim."""
    size: Memory = "20Gi"
    """Storage to ask for."""
    storage_class: DnsLabel | None = None
    """Storage class to ask; by default the cluster's own default class."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """`ReadWriteOnce` suits a cluster of one node; hosts on several nodes need a class with `ReadWriteMany`."""


class UrlConfig(Section):
    """A bucket of an object store, which the trainer image opens by its URL."""

    kind: Literal["url"]
    """An object store."""
    url: Annotated[str, AfterValidator(_bucket_url)] = Field(examples=["s3://team-checkpoints/runs"])
    """URL of the bucket, with a prefix or without one."""


BucketConfig = Annotated[ClaimConfig | UrlConfig, Field(discriminator="kind")]


class KubeconfigConfig(Section):
    """A cluster that is there already (kind, k3d, minikube, Docker Desktop, any other), reached by a kubeconfig."""

    kind: Literal["kubeconfig"]
    """A cluster of your own."""
    context: Annotated[str, Field(min_length=1)] = Field(examples=["kind-kind"])
    """Name of the context in the kubeconfig."""
    kubeconfig: str | None = None
    """Path of the kubeconfig file; by default what kubectl reads: `$KUBECONFIG`, else `~/.kube/config`."""
    namespace: GivenNamespaceName = "training"
    """Kubernetes namespace of the jobs; only one stack may use it."""
    create_namespace: bool = True
    """Whether the stack makes the namespace and removes it with all that is in it, so that you use it for nothing else;
    `false` where it is given to you: its labels and what else is in it stay as they are. A stack that has made one and
    is told `false` later removes it."""
    image: Image = Field(examples=["example.com/team/trainer:1.0"])
    """Trainer image that the cluster can pull, built from `trainer/Dockerfile`; a job on XLA names its own, built from
    `trainer/Dockerfile.xla`."""
    bucket: BucketConfig = ClaimConfig(kind="claim")
    """Where jobs keep checkpoints and metrics."""
    operators: Literal["install", "present"] = "install"
    """`install` those that the jobs need, at Trainyard's versions (docs/operators.md); `present` where the cluster has
    them already."""
