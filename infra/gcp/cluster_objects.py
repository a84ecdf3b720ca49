"""Kubernetes objects that a GKE stack adds to its cluster: claims of host folders, and compute classes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import (
    HostPathVolumeSourceArgs,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpecArgs,
    PersistentVolumeSpecArgs,
    VolumeResourceRequirementsArgs,
)
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.naming import stack_labels

SIZE = {"storage": "1Gi"}
"""Size that the API requires. A host folder has no fixed size."""
READ_ONLY = "ReadOnlyMany"


@dataclass(frozen=True, kw_only=True)
class HostFolderArgs:
    """Inputs of `HostFolder`."""

    namespace: pulumi.Input[str]
    """Namespace of the pods."""
    claim: str
    """Name of the claim and suffix of the volume's name."""
    folder: str
    """Host folder. Pods with the claim do not start on nodes without it, and their events report the reason."""


class HostFolder(pulumi.ComponentResource):
    """Volume of the folder and its claim.

    The `restricted` Pod Security Standard rejects host paths in pods and allows claims.
    """

    claim: pulumi.Output[str]
    """Name of the claim."""

    def __init__(self, name: str, args: HostFolderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:HostFolder", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        called = pulumi.Output.concat(args.namespace, "-", args.claim)
        volume = PersistentVolume(
            f"{name}-volume",
            metadata=ObjectMetaArgs(name=called, labels=stack_labels()),
            spec=PersistentVolumeSpecArgs(
                capacity=SIZE,
                access_modes=[READ_ONLY],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name=called,
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
                resources=VolumeResourceRequirementsArgs(requests=SIZE),
            ),
            opts=child,
        )
        self.claim = claim.metadata.name
        self.register_outputs({"claim": self.claim})


@dataclass(frozen=True, kw_only=True)
class CapacityLadderArgs:
    """Inputs of `CapacityLadder`."""

    pool: str
    """Name of the pool in the settings, and of the ComputeClass."""
    node_pools: list[list[pulumi.Output[str]]]
    """Names of the GKE node pools of each provisioning model, in fallback order."""


class CapacityLadder(pulumi.ComponentResource):
    """ComputeClass. Jobs that select it get nodes from the first provisioning model with capacity.

    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """

    def __init__(self, name: str, args: CapacityLadderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:CapacityLadder", name, None, opts)
        CustomResource(
            f"{name}-class",
            api_version="cloud.google.com/v1",
            kind="ComputeClass",
            metadata=ObjectMetaArgs(name=args.pool, labels=stack_labels()),
            spec={
                "priorities": [{"nodepools": names} for names in args.node_pools],
                "whenUnsatisfiable": "DoNotScaleUp",
                "nodePoolAutoCreation": {"enabled": False},
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
