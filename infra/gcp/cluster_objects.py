"""Kubernetes objects of a GKE stack: volumes of host folders, and compute classes with a fallback order."""

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

PLACEHOLDER_SIZE = {"storage": "1Gi"}
"""The API requires a size, but a host folder has none."""
READ_ONLY = "ReadOnlyMany"


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
    """Name of the claim."""

    def __init__(self, name: str, args: HostFolderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:HostFolder", name, None, opts)
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


@dataclass(frozen=True, kw_only=True)
class FallbackComputeClassArgs:
    """Inputs of `FallbackComputeClass`."""

    pool: str
    """Name of the pool in the settings, and of the ComputeClass."""
    node_pools: list[list[pulumi.Output[str]]]
    """Names of the GKE node pools of each provisioning model, in fallback order."""


class FallbackComputeClass(pulumi.ComponentResource):
    """ComputeClass of a pool: jobs get nodes from the first provisioning model with capacity.

    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """

    def __init__(self, name: str, args: FallbackComputeClassArgs, opts: pulumi.ResourceOptions | None = None) -> None:
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
