"""Platform: outputs of the provisioned platform that jobs and users need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pulumi

if TYPE_CHECKING:
    import pulumi_kubernetes

CLAIM_URL = "file:///bucket"
"""URL of the bucket in a pod, if the bucket is a volume."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Properties of the platform that jobs and their users need."""

    provider: pulumi_kubernetes.Provider
    """Provider that creates the jobs' resources."""
    namespace: pulumi.Output[str]
    """Kubernetes namespace of the jobs."""
    service_account: pulumi.Output[str]
    """Service account of the jobs' pods."""
    image: pulumi.Input[str]
    """Trainer image. Empty if no job uses it and the stack did not build it."""
    bucket_url: pulumi.Input[str]
    """URL of the bucket in a pod."""
    bucket_claim: pulumi.Output[str] | None
    """Persistent volume claim of the bucket, or None for an object store."""
    bucket_location: pulumi.Input[str]
    """Location of the bucket for users: its URL, or a folder of this machine."""
    kubectl: pulumi.Output[str]
    """kubectl command for the platform's namespace."""
    kubeconfig_path: pulumi.Input[str]
    """Kubeconfig on this machine. Several paths are joined as in `$KUBECONFIG`."""
    context: str
    """Context in the kubeconfig."""
    get_kubeconfig: pulumi.Input[str]
    """Command that configures kubectl for this cluster."""
    console: Mapping[str, str] = field(default_factory=dict)
    """Topic -> page of the cloud's console."""
    kubeconfig: pulumi.Output[str] | None = None
    """Kubeconfig of a cluster that the stack created (secret), else None."""
    operator_images: Mapping[str, str] = field(default_factory=dict)
    """Operator -> its image on this machine. Other operators' images come from their projects' registries."""
    builtin_images: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Name of a builtin image, or of an image with a job's layer -> its reference."""
    deleted_with: pulumi.Resource | None = None
    """Resource whose deletion deletes everything in the cluster, if the stack created the cluster."""
    images: pulumi.Resource | None = None
    """Resource that loads the stack's images into the nodes of a local cluster, else None."""

    def resource_options(self) -> pulumi.ResourceOptions:
        """Return the options of a component whose resources are in this platform's cluster."""
        return pulumi.ResourceOptions(providers={"kubernetes": self.provider}, deleted_with=self.deleted_with)

    def before_pods(self) -> list[pulumi.Resource]:
        """Return the resources that must exist before a pod can start."""
        return [] if self.images is None else [self.images]


def kubeconfig_path(context: str) -> str:
    """Return the path of a cloud cluster's kubeconfig, relative to the checkout. `make up` writes the file."""
    return f".trainyard/{context}.kubeconfig"
