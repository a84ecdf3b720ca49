"""Pods, CPUs and memory that an EKS node reports, without the share of hypervisor, kernel and nodeadm. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from infra.hardware.capacity import KUBELET_EVICTION_BYTES, MEBIBYTE, Capacity
from infra.hardware.ec2 import Ec2Machine
from infra.hardware.machines import GIBIBYTE, kept_cpu

MOST_PODS = 110
"""Maximum number of pods of a node. Kubernetes recommends it, and EKS sets it for types below 30 vCPUs.

https://docs.aws.amazon.com/eks/latest/userguide/choosing-instance-type.html
"""

_SIZE_INTERFACES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "large": (3, 10),
        "xlarge": (4, 15),
        "2xlarge": (4, 15),
        "4xlarge": (8, 30),
        "8xlarge": (8, 30),
        "12xlarge": (8, 30),
        "16xlarge": (15, 50),
        "24xlarge": (15, 50),
    }
)
"""Network interfaces of the first card, and addresses of each interface, for each size of a CPU type."""

_GPU_INTERFACES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "g4dn.xlarge": (3, 10),
        "g4dn.2xlarge": (3, 10),
        "g4dn.4xlarge": (3, 10),
        "g4dn.8xlarge": (4, 15),
        "g4dn.12xlarge": (8, 30),
        "g4dn.16xlarge": (4, 15),
        "g4dn.metal": (15, 50),
        "g5.xlarge": (4, 15),
        "g5.2xlarge": (4, 15),
        "g5.4xlarge": (8, 30),
        "g5.8xlarge": (8, 30),
        "g5.12xlarge": (15, 50),
        "g5.16xlarge": (8, 30),
        "g5.24xlarge": (15, 50),
        "g5.48xlarge": (7, 50),
        "g6.xlarge": (4, 15),
        "g6.2xlarge": (4, 15),
        "g6.4xlarge": (8, 30),
        "g6.8xlarge": (8, 30),
        "g6.12xlarge": (8, 30),
        "g6.16xlarge": (15, 50),
        "g6.24xlarge": (15, 50),
        "g6.48xlarge": (15, 50),
        "p3.2xlarge": (4, 15),
        "p3.8xlarge": (8, 30),
        "p3.16xlarge": (8, 30),
        "p3dn.24xlarge": (15, 50),
        "p4d.24xlarge": (15, 50),
        "p4de.24xlarge": (15, 50),
        "p5.48xlarge": (2, 50),
        "p5e.48xlarge": (2, 50),
        "p5en.48xlarge": (4, 50),
        "p6-b200.48xlarge": (4, 50),
    }
)
"""Network interfaces of the first card, and addresses of each interface, for each GPU type.

Source: awslabs/amazon-eks-ami 81fec2e, nodeadm/internal/kubelet/instance-info.jsonl. That file lacks P3, for which
nodeadm asks EC2: aws/amazon-vpc-cni-k8s pkg/vpc/vpc_ip_resource_limit.go.
"""

_MISSING_MIB: Mapping[str, int] = MappingProxyType(
    {
        "m5.large": 559,
        "m5.xlarge": 868,
        "m5.2xlarge": 1149,
        "m5.4xlarge": 2718,
        "m5.8xlarge": 5090,
        "m5.12xlarge": 5540,
        "m5.16xlarge": 7178,
        "m5.24xlarge": 10573,
        "g4dn.xlarge": 700,
        "g4dn.2xlarge": 1149,
        "g4dn.4xlarge": 2046,
        "g4dn.8xlarge": 3746,
        "g4dn.12xlarge": 5540,
        "g4dn.16xlarge": 7178,
        "g4dn.metal": 6652,
        "g5.xlarge": 590,
        "g5.2xlarge": 1039,
        "g5.4xlarge": 1936,
        "g5.8xlarge": 3636,
        "g5.12xlarge": 5430,
        "g5.16xlarge": 7132,
        "g5.24xlarge": 10529,
        "g5.48xlarge": 20552,
        "p3.2xlarge": 1198,
        "p3.8xlarge": 4248,
        "p3.16xlarge": 7961,
    }
)
"""Memory in MiB of each type that its node does not report, measured on nodes.

Source: aws/karpenter-provider-aws 33450d8, pkg/providers/instancetype/zz_generated.memory_overhead.go.
"""
_SPREAD_MIB = 40
"""Memory in MiB that later kernels reserve in addition: 33 MiB on g5.8xlarge (aws/aws-k8s-tester pull request 471)."""

_MISSING_BY_FAMILY: Mapping[str, tuple[int, float]] = MappingProxyType(
    {
        **dict.fromkeys(("m6i", "m7i", "c6i", "c7i", "r6i", "r7i"), (150, 34.5)),
        "g6": (310, 52.0),
        **dict.fromkeys(("p3dn", "p4d", "p4de"), (150, 27.2)),
        **dict.fromkeys(("p5", "p5e"), (150, 24.2)),
        **dict.fromkeys(("p5en", "p6-b200"), (150, 34.5)),
    }
)
"""Memory that nodes of a family do not report, as MiB and as MiB per GiB. It is at least the measured memory.

m6i, c6i and r6i: Karpenter's table. r7i: 1212 of 32 GiB, 4311 of 128 GiB (2i2c-org/infrastructure 63cd17e,
node-capacity-info.json). g6: 3626 of 64 GiB, at most 5.3 % (pytorch/ci-infra pull requests 1082, 910). p4de:
1146004920Ki allocatable with 21122Mi of huge pages, like r5.24xlarge. p5: capacity 2097112716Ki (aws-do-eks).

No figures were found for p5en and p6-b200. They use those of the newest CPU family.
"""

HUGE_PAGES_PER_VCPU = 110
"""Huge pages of 2 MiB for each vCPU that the EFA driver allocates, plus one page in total.

42242Mi on a p5.48xlarge, 21122Mi on a p4de.24xlarge (aws-samples/aws-do-eks); HUGEPAGES_2MB_PER_CORE in
bottlerocket-core-kit sources/corndog. The EKS image installs the driver: awslabs/amazon-eks-ami 81fec2e,
templates/al2023/provisioners/install-efa.sh:53. No published figure of an AL2023 node was found.
"""


def _interfaces(machine: Ec2Machine) -> tuple[int, int]:
    """Return the network interfaces of a type's first card, and the addresses of each interface."""
    return _GPU_INTERFACES.get(machine.name) or _SIZE_INTERFACES[machine.name.partition(".")[2]]


def interface_pods(machine: Ec2Machine) -> int:
    """Return the number of pods that get an address from a type's network interfaces.

    awslabs/amazon-eks-ami 81fec2e, nodeadm/internal/kubelet/eni_max_pods.go, calculateStandardMaxPods.
    """
    interfaces, addresses = _interfaces(machine)
    return interfaces * (addresses - 1) + 2


def held_addresses(machine: Ec2Machine) -> int:
    """Return the number of subnet addresses that a node with few pods holds.

    aws-node keeps a whole network interface in reserve (WARM_ENI_TARGET=1), in addition to the one of the pods:
    aws/amazon-vpc-cni-k8s 0f77b52, docs/eni-and-ip-target.md. The count includes the primary address of each interface.
    EFA-only interfaces have no addresses.
    """
    _, addresses = _interfaces(machine)
    return 2 * addresses


def eks_pods(machine: Ec2Machine) -> int:
    """Return the maximum number of pods of a node, which Trainyard configures in the kubelet.

    Without prefix delegation, the addresses of its network interfaces limit a node's pods.
    """
    return min(interface_pods(machine), MOST_PODS)


def eks_capacity(machine: Ec2Machine) -> Capacity:
    """Return the CPUs and memory that a node reports as its capacity."""
    if machine.name in _MISSING_MIB:
        missing = _MISSING_MIB[machine.name] + _SPREAD_MIB
    else:
        base, per_gib = _MISSING_BY_FAMILY[machine.family]
        missing = base + int(per_gib * machine.memory_gib)
    memory = int(machine.memory_gib * GIBIBYTE) - missing * MEBIBYTE
    return Capacity(millicores=machine.vcpus * 1000, memory=memory)


def eks_allocatable(machine: Ec2Machine, *, fabric: bool = False) -> Capacity:
    """Return the capacity of a node for pods. `fabric` is True for a node with EFA adapters.

    nodeadm reserves memory for the pods that the interfaces allow and ignores maxPods: awslabs/amazon-eks-ami 81fec2e,
    nodeadm/internal/kubelet/config.go:274-286, 460. The kubelet subtracts huge pages from allocatable memory.
    """
    capacity = eks_capacity(machine)
    kept = (255 + 11 * interface_pods(machine)) * MEBIBYTE + KUBELET_EVICTION_BYTES
    if fabric:
        kept += 2 * (HUGE_PAGES_PER_VCPU * machine.vcpus + 1) * MEBIBYTE
    return Capacity(millicores=capacity.millicores - kept_cpu(machine.vcpus), memory=capacity.memory - kept)
