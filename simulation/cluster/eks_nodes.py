"""Nodes of an EKS node group in the API server: labels, taints, capacity and allocatable. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.hardware.ec2 import Ec2Machine
from infra.hardware.node_capacity import eks_allocatable, eks_capacity, eks_pods
from simulation.cloud.state import Properties
from simulation.cluster.node import node

LABEL = "eks.amazonaws.com/nodegroup"
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


def nodes(group: Properties, machine: Ec2Machine, zones: Sequence[str], adapters: int) -> list[dict[str, Any]]:
    """Return the Node objects of a group, in turn in each of its zones.

    `adapters` is the number of EFA adapters in the group's launch template.

    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
    """
    labels = {
        LABEL: str(group["nodeGroupName"]),
        "eks.amazonaws.com/capacityType": str(group.get("capacityType") or "ON_DEMAND"),
        "node.kubernetes.io/instance-type": machine.name,
        **(group.get("labels") or {}),
    }
    taints = [
        {"key": each["key"], "value": each.get("value") or "", "effect": _EFFECTS[each["effect"]]}
        for each in group.get("taints") or []
    ]
    accelerators = {"nvidia.com/gpu": machine.gpus, "vpc.amazonaws.com/efa": adapters}
    made = []
    for index in range(int((group.get("scalingConfig") or {}).get("desiredSize") or 0)):
        zone = zones[index % len(zones)]
        name = f"{group['clusterName']}-{group['nodeGroupName']}-{index}.{zone[:-1]}.compute.internal"
        made.append(
            node(
                name=name,
                labels=labels,
                zone=zone,
                region=zone[:-1],
                provider_id=f"aws:///{zone}/i-{index:017x}",
                taints=taints,
                machine=machine,
                capacity=eks_capacity(machine),
                allocatable=eks_allocatable(machine, fabric=adapters > 0),
                pods=eks_pods(machine),
                disk_gb=100,
                accelerators={key: value for key, value in accelerators.items() if value},
            )
        )
    return made
