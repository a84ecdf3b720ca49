"""A Node object with the resources that a machine of the cloud offers to pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.hardware import Capacity
from infra.hardware.machines import MachineType
from infra.local.settings import KUBERNETES_VERSION

KUBELET = f"v{KUBERNETES_VERSION}"


def node(
    *,
    name: str,
    labels: Mapping[str, str],
    zone: str,
    region: str,
    provider_id: str,
    taints: Sequence[Mapping[str, str]],
    machine: MachineType,
    allocatable: Capacity,
    pods: int,
    disk_gb: int,
    accelerators: Mapping[str, int],
    capacity: Capacity | None = None,
) -> dict[str, Any]:
    """Return a ready Node with the machine's capacity and allocatable: cpu, memory, pods, disk and accelerators."""
    architecture = "arm64" if machine.name.startswith(("a4x", "t2a", "c4a", "g5g", "m7g", "p6e")) else "amd64"
    shown = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        "type": "kwok",
        **labels,
    }
    extended = {key: str(count) for key, count in accelerators.items()}
    disk = disk_gb * 10**9
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": shown},
        "spec": {"providerID": provider_id, "taints": list(taints)},
        "status": {
            "capacity": {**_amounts(capacity or machine.capacity, pods, disk), **extended},
            "allocatable": {**_amounts(allocatable, pods, disk * 9 // 10), **extended},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": "linux",
                "kubeletVersion": KUBELET,
                "kubeProxyVersion": KUBELET,
                "containerRuntimeVersion": "containerd://2.0",
                "kernelVersion": "6.6",
                "osImage": machine.name,
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


def _amounts(capacity: Capacity, pods: int, disk: int) -> dict[str, str]:
    return {
        "cpu": f"{capacity.millicores}m",
        "memory": str(capacity.memory),
        "pods": str(pods),
        "ephemeral-storage": str(disk),
    }
