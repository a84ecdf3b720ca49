"""Fabric: additional networks that connect the GPUs of different A3 and A4 hosts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from types import MappingProxyType
from typing import TYPE_CHECKING

from infra.hardware.gce import gce_family
from infra.hardware.machines import MachineType, NcclEnvironmentScript

if TYPE_CHECKING:
    from infra.gcp.pools import NodePoolPlan

SUBNET_PREFIX = 20
"""Prefix length of each additional subnet. A /20 has addresses for 4,092 nodes."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """Additional network interface of a host."""

    name: str
    """Name of the Kubernetes Network and suffix of the subnet's name."""
    vpc: str
    """Name of the VPC in the fabric."""
    device_mode: str
    """Device mode, `NetDevice` or `RDMA`: https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx"""


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """Additional networks of a machine type."""

    mtu: int
    """Maximum packet size of the VPCs, in bytes."""
    interfaces: tuple[Interface, ...]
    """Interfaces of a host, in order."""
    rdma_profile: str | None = None
    """Suffix after the zone in the name of the RDMA VPC's network profile."""
    nccl_environment: NcclEnvironmentScript | None = None
    """NCCL environment script that Google's installer puts on hosts. None if it would need a privileged daemon in each
    pod."""

    @property
    def vpcs(self) -> tuple[str, ...]:
        """Name suffixes of the VPCs."""
        return tuple(dict.fromkeys(interface.vpc for interface in self.interfaces))


def _ethernet(count: int) -> tuple[Interface, ...]:
    names = [f"gpu-nic-{index}" for index in range(count)]
    return tuple(Interface(name=name, vpc=name, device_mode="NetDevice") for name in names)


GIB = NcclEnvironmentScript(
    claim="gib",
    folder="/home/kubernetes/bin/gib",
    mount="/usr/local/gib",
    script="/usr/local/gib/scripts/set_nccl_env.sh",
)
"""NCCL plug-in for RDMA with Google's tuning.

https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom#configure-pod-manifests-rdma
"""
_RDMA = Fabric(
    mtu=8896,
    nccl_environment=GIB,
    interfaces=(
        Interface(name="gvnic-1", vpc="gvnic-1", device_mode="NetDevice"),
        *(Interface(name=f"rdma-{index}", vpc="rdma", device_mode="RDMA") for index in range(8)),
    ),
    rdma_profile="vpc-roce",
)

FABRICS: Mapping[str, Fabric] = MappingProxyType(
    {
        "tcpx": Fabric(mtu=8244, interfaces=_ethernet(4)),
        "tcpxo": Fabric(mtu=8244, interfaces=_ethernet(8)),
        "rdma": _RDMA,
    }
)
"""Fabrics by their name in a `GceFamily`: GPUDirect-TCPX, -TCPXO and -RDMA.

https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx,
https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom,
https://cloud.google.com/vpc/docs/rdma-network-profiles
"""


GPUS_PER_HOST = 8
"""Number of GPUs of a whole host. Machine types with fewer GPUs have no additional networks."""


def machine_fabric(machine: MachineType) -> Fabric | None:
    """Return the fabric that a machine type supports."""
    name = gce_family(machine).fabric
    return FABRICS[name] if name is not None and machine.gpus == GPUS_PER_HOST else None


def fabric_of(plan: NodePoolPlan) -> Fabric | None:
    """Return the fabric of a pool's nodes, or None for a single node or a machine type without a fabric."""
    return machine_fabric(plan.machine) if plan.nodes > 1 else None


def subnets(fabric: Fabric, network: str) -> dict[str, str]:
    """Return the subnet range of each interface, allocated in order from `network`."""
    ranges = IPv4Network(network).subnets(new_prefix=SUBNET_PREFIX)
    return {interface.name: str(next(ranges)) for interface in fabric.interfaces}


def pod_annotations(interfaces: Sequence[Interface]) -> dict[str, str]:
    """Return the annotations that give a pod every interface.

    https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods
    """
    networks = ["default", *(interface.name for interface in interfaces)]
    entries = [{"interfaceName": f"eth{index}", "network": network} for index, network in enumerate(networks)]
    return {"networking.gke.io/default-interface": "eth0", "networking.gke.io/interfaces": json.dumps(entries)}
