"""Platform: properties that jobs and their users need. TrainingNamespace: objects that all jobs share.

HostFolder: volume of a host folder. Pods mount the volume through a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.core.v1 import (
    HostPathVolumeSourceArgs,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpecArgs,
    PersistentVolumeSpecArgs,
    ServiceAccount,
    VolumeResourceRequirementsArgs,
)
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.naming import stack_labels

if TYPE_CHECKING:
    import pulumi_kubernetes

    from infra.builtin_images import JobLayer

CLAIM_URL = "file:///bucket"
"""URL of the bucket in a pod, if the bucket is a volume."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Properties of the platform that jobs and their users need."""

    provider: pulumi_kubernetes.Provider
    """Provider that creates the jobs' resources."""
    namespace: pulumi.Output[str]
    service_account: pulumi.Output[str]
    image: Callable[[str | JobLayer], pulumi.Input[str]]
    """Function that returns the reference of a builtin image, or of the image with a job's layer."""
    bucket_url: pulumi.Input[str]
    """URL of the bucket in a pod."""
    bucket_claim: pulumi.Output[str] | None
    """Persistent volume claim of the bucket, or None for an object store."""
    bucket_location: pulumi.Input[str]
    """Location of the bucket for users: its URL, or a folder of this machine."""
    kubectl: pulumi.Output[str]
    """kubectl command for the platform's namespace."""
    kubeconfig_path: pulumi.Input[str]
    """Kubeconfig on this machine. Several paths have the format of `$KUBECONFIG`."""
    context: str
    get_kubeconfig: pulumi.Input[str]
    """Command that configures kubectl for this cluster."""
    console: Mapping[str, str] = field(default_factory=dict)
    """Topic -> page of the cloud's console."""
    kubeconfig: pulumi.Output[str] | None = None
    """Kubeconfig of a cluster that the stack created (secret), else None."""
    operator_images: Mapping[str, str] = field(default_factory=dict)
    """Operator -> its image on this machine. Other operators' images come from their projects' registries."""
    deleted_with: pulumi.Resource | None = None
    """Resource whose deletion deletes all Kubernetes objects in the cluster, if the stack created the cluster."""
    node_images: pulumi.Resource | None = None
    """Resource that loads the stack's images into the nodes of a local cluster, else None."""

    def resource_options(self) -> pulumi.ResourceOptions:
        """Return the options of a component whose resources are in this platform's cluster."""
        return pulumi.ResourceOptions(providers={"kubernetes": self.provider}, deleted_with=self.deleted_with)

    def before_pods(self) -> list[pulumi.Resource]:
        """Return the resources that must exist before a pod can start."""
        return [] if self.node_images is None else [self.node_images]


def kubeconfig_path(context: str) -> str:
    """Return the path of a cloud cluster's kubeconfig, relative to the project folder. `make up` writes the file."""
    return f".trainyard/{context}.kubeconfig"


SERVICE_ACCOUNT = "trainer"
BUCKET_CLAIM = "bucket"
PLACEHOLDER_SIZE = {"storage": "1Gi"}
"""Size of a host folder's volume. The API requires a size, but a folder has none."""
READ_ONLY = "ReadOnlyMany"


@dataclass(frozen=True, kw_only=True)
class BucketClaim:
    """Persistent volume claim of the bucket."""

    size: str
    """Requested storage, a Kubernetes quantity."""
    access_mode: str
    storage_class: pulumi.Input[str] | None = None
    """Storage class; None for the cluster's default."""
    folder: str | None = None
    """Folder with the volume's data, on every node. None for a volume of the storage class."""


@dataclass(frozen=True, kw_only=True)
class TrainingNamespaceArgs:
    """Arguments of a training namespace."""

    namespace: str
    is_present: bool = False
    """True if the namespace already exists. The stack then does not manage or delete it."""
    bucket: BucketClaim | None = None
    """Volume of the bucket, or None for an object store."""
    account_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Annotations of the pods' service account, such as its cloud identity."""


class TrainingNamespace(pulumi.ComponentResource):
    """Namespace with the objects that all its jobs share.

    A namespace that the stack creates enforces the `restricted` Pod Security Standard. All pods of jobs satisfy it.
    """

    namespace: pulumi.Output[str]
    """Name of the namespace, known once it exists."""
    service_account: pulumi.Output[str]
    """Name of the pods' service account, which has no Kubernetes permissions and no token."""
    bucket_claim: pulumi.Output[str] | None
    """Name of the bucket's persistent volume claim, or None for an object store."""

    def __init__(self, name: str, args: TrainingNamespaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:infra:TrainingNamespace", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.namespace = pulumi.Output.from_input(args.namespace) if args.is_present else _namespace(name, args, child)
        account = ServiceAccount(
            f"{name}-account",
            metadata=self._metadata(SERVICE_ACCOUNT, args.account_annotations or None),
            automount_service_account_token=False,
            opts=child,
        )
        self.service_account = account.metadata.name
        self.bucket_claim = None if args.bucket is None else self._claim(f"{name}-bucket", args, args.bucket, child)
        self.register_outputs(
            {
                "namespace": self.namespace,
                "service_account": self.service_account,
                "bucket_claim": self.bucket_claim,
            }
        )

    def _metadata(self, name: str, annotations: Mapping[str, pulumi.Input[str]] | None = None) -> ObjectMetaArgs:
        return ObjectMetaArgs(name=name, namespace=self.namespace, labels=stack_labels(), annotations=annotations)

    def _claim(
        self, name: str, args: TrainingNamespaceArgs, bucket: BucketClaim, opts: pulumi.ResourceOptions
    ) -> pulumi.Output[str]:
        volume = None if bucket.folder is None else _volume(f"{name}-volume", args.namespace, bucket, opts)
        claim = PersistentVolumeClaim(
            name,
            # Do not wait: many storage classes bind a claim only after its first pod exists.
            metadata=self._metadata(BUCKET_CLAIM, {"pulumi.com/skipAwait": "true"}),
            spec=PersistentVolumeClaimSpecArgs(
                access_modes=[bucket.access_mode],
                storage_class_name=bucket.storage_class if volume is None else volume,
                volume_name=volume,
                resources=VolumeResourceRequirementsArgs(requests={"storage": bucket.size}),
            ),
            opts=opts,
        )
        return claim.metadata.name


def _namespace(name: str, args: TrainingNamespaceArgs, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    pod_security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    namespace = Namespace(
        f"{name}-namespace",
        metadata=ObjectMetaArgs(name=args.namespace, labels={**stack_labels(), **pod_security}),
        opts=opts,
    )
    return namespace.metadata.name


def _volume(name: str, namespace: str, bucket: BucketClaim, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Create a volume of the nodes' folder. Return the name of the volume, which is also the name of its storage class.

    Each namespace has a separate volume. After its claim's deletion, the volume keeps the data but binds no new claim.
    """
    volume_name = f"{namespace}-bucket"
    volume = PersistentVolume(
        name,
        metadata=ObjectMetaArgs(name=volume_name, labels=stack_labels()),
        spec=PersistentVolumeSpecArgs(
            capacity={"storage": bucket.size},
            access_modes=[bucket.access_mode],
            persistent_volume_reclaim_policy="Retain",
            storage_class_name=volume_name,
            host_path=HostPathVolumeSourceArgs(path=bucket.folder or "", type="Directory"),
        ),
        opts=opts,
    )
    return volume.metadata.name


@dataclass(frozen=True, kw_only=True)
class HostFolderArgs:
    """Inputs of `HostFolder`."""

    namespace: pulumi.Input[str]
    """Namespace of the pods."""
    claim: str
    """Name of the claim and suffix of the volume's name."""
    folder: str
    """Host folder. On nodes without it, pods with the claim do not start, and their events report the reason."""


class HostFolder(pulumi.ComponentResource):
    """Volume of a host folder and its claim.

    The `restricted` Pod Security Standard rejects host paths in pods and allows claims.
    """

    claim: pulumi.Output[str]

    def __init__(self, name: str, args: HostFolderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:infra:HostFolder", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        volume_name = pulumi.Output.concat(args.namespace, "-", args.claim)
        volume = PersistentVolume(
            f"{name}-volume",
            metadata=ObjectMetaArgs(name=volume_name, labels=stack_labels()),
            spec=PersistentVolumeSpecArgs(
                capacity=PLACEHOLDER_SIZE,
                access_modes=[READ_ONLY],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name=volume_name,
                host_path=HostPathVolumeSourceArgs(path=args.folder, type="Directory"),
            ),
            opts=child,
        )
        claim = PersistentVolumeClaim(
            f"{name}-claim",
            metadata=ObjectMetaArgs(name=args.claim, namespace=args.namespace, labels=stack_labels()),
            spec=PersistentVolumeClaimSpecArgs(
                access_modes=[READ_ONLY],
                storage_class_name=volume.metadata.name,
                volume_name=volume.metadata.name,
                resources=VolumeResourceRequirementsArgs(requests=PLACEHOLDER_SIZE),
            ),
            opts=child,
        )
        self.claim = claim.metadata.name
        self.register_outputs({"claim": self.claim})
