"""Platform: the place that jobs run on, whatever made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pulumi

if TYPE_CHECKING:
    import pulumi_kubernetes

PROJECT = Path(__file__).resolve().parents[1]
CLAIM_URL = "file:///bucket"
"""The bucket as a pod sees it, when it is a volume."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What jobs need of the place that they run on, and what people need to look at them there."""

    provider: pulumi_kubernetes.Provider
    """Creates the jobs' resources."""
    namespace: pulumi.Output[str]
    """Kubernetes namespace of the jobs."""
    service_account: pulumi.Output[str]
    """Service account of the jobs' pods."""
    image: pulumi.Input[str]
    """Trainer image; empty where no job runs it and none was built."""
    bucket_url: pulumi.Input[str]
    """The bucket as a pod sees it."""
    bucket_claim: pulumi.Output[str] | None
    """Persistent volume claim that is the bucket; None for an object store."""
    bucket_location: pulumi.Input[str]
    """The bucket as the owner of the stack sees it."""
    kubectl: pulumi.Output[str]
    """How to call kubectl for this platform's namespace."""
    kubeconfig_path: pulumi.Input[str]
    """Kubeconfig on this machine; several files are joined as in `$KUBECONFIG`."""
    context: str
    """Context in the kubeconfig."""
    get_kubeconfig: pulumi.Input[str]
    """Command that makes kubectl talk to this cluster."""
    console: Mapping[str, str] = field(default_factory=dict)
    """Pages of the cloud's console by what they show."""
    kubeconfig: pulumi.Output[str] | None = None
    """Kubeconfig of the cluster (secret), when the stack made the cluster."""
    operator_images: Mapping[str, str] = field(default_factory=dict)
    """Images of operators by their names, where the platform has its own; for others their projects' are pulled."""
    own_images: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """References of Trainyard's own images by the names that jobs give them."""
    deleted_with: pulumi.Resource | None = None
    """The resource whose deletion takes everything in the cluster with it, when the stack made the cluster."""
    images: pulumi.Resource | None = None
    """The resource that is there when the nodes have the stack's images, when the stack loads them."""

    def resource_options(self) -> pulumi.ResourceOptions:
        """Options of a component whose resources are in this platform's cluster."""
        return pulumi.ResourceOptions(providers={"kubernetes": self.provider}, deleted_with=self.deleted_with)

    def before_pods(self) -> list[pulumi.Resource]:
        """What must be there before a pod can start."""
        return [] if self.images is None else [self.images]


def kubeconfig_path(context: str) -> str:
    """Where `make up` puts the kubeconfig of a cloud's cluster, in the checkout of whoever asks."""
    return f".trainyard/{context}.kubeconfig"
