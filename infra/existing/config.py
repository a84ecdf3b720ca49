"""Settings of an existing cluster. No Pulumi."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from settings.problem import Invalid, token_kind
from settings.types import DnsLabel, ExistingClusterNamespace, Image, Memory, Section


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
    """`install` installs the operators that the jobs need, at Trainyard's versions (docs/operators.md). `present` uses
    the operators of the cluster."""
