"""CapacityLadder: a ComputeClass that makes GKE try provisioning models in order."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.naming import stack_labels


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
