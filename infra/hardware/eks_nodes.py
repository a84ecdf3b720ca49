"""Pods, CPUs and memory that an EKS node reports, without the share of hypervisor, kernel and nodeadm. Pure."""

from __future__ import annotations

from infra.hardware.capacity import KUBELET_EVICTION_BYTES, MEBIBYTE, Capacity
from infra.hardware.ec2 import EC2_FAMILIES, Ec2Machine
from infra.hardware.machines import GIBIBYTE, kept_cpu

MOST_PODS = 110
"""Maximum number of pods of a node. Kubernetes recommends it, and EKS sets it for types below 30 vCPUs.

https://docs.aws.amazon.com/eks/latest/userguide/choosing-instance-type.html
"""

_SPREAD_MIB = 40
"""Memory in MiB that later kernels reserve in addition: 33 MiB on g5.8xlarge (aws/aws-k8s-tester pull request 471)."""

# Sources of `Ec2Family.missing_memory`. m6i, c6i and r6i: Karpenter's table. r7i: 1212 of 32 GiB, 4311 of 128 GiB
# (2i2c-org/infrastructure 63cd17e, node-capacity-info.json). g6: 3626 of 64 GiB, at most 5.3 % (pytorch/ci-infra pull
# requests 1082, 910). p4de: 1146004920Ki allocatable with 21122Mi of huge pages, like r5.24xlarge. p5: capacity
# 2097112716Ki (aws-do-eks). No figures were found for g6e, g7e, p5en, p6-b200 and p6-b300. g6e and g7e use those
# of g6, the others those of the newest CPU family.

HUGE_PAGES_PER_VCPU = 110
"""Huge pages of 2 MiB for each vCPU that the EFA driver allocates, plus one page in total.

42242Mi on a p5.48xlarge, 21122Mi on a p4de.24xlarge (aws-samples/aws-do-eks); HUGEPAGES_2MB_PER_CORE in
bottlerocket-core-kit sources/corndog. The EKS image installs the driver: awslabs/amazon-eks-ami 81fec2e,
templates/al2023/provisioners/install-efa.sh:53. No published figure of an AL2023 node was found.
"""


def interface_pods(machine: Ec2Machine) -> int:
    """Return the number of pods that get an address from a type's network interfaces.

    awslabs/amazon-eks-ami 81fec2e, nodeadm/internal/kubelet/eni_max_pods.go, calculateStandardMaxPods.
    """
    return machine.interfaces * (machine.addresses - 1) + 2


def held_addresses(machine: Ec2Machine) -> int:
    """Return the number of subnet addresses that a node with few pods holds.

    aws-node keeps a whole network interface in reserve (WARM_ENI_TARGET=1), in addition to the one of the pods:
    aws/amazon-vpc-cni-k8s 0f77b52, docs/eni-and-ip-target.md. The count includes the primary address of each interface.
    EFA-only interfaces have no addresses.
    """
    return 2 * machine.addresses


def eks_pods(machine: Ec2Machine) -> int:
    """Return the maximum number of pods of a node, which Trainyard configures in the kubelet.

    Without prefix delegation, the addresses of its network interfaces limit a node's pods.
    """
    return min(interface_pods(machine), MOST_PODS)


def eks_capacity(machine: Ec2Machine) -> Capacity:
    """Return the CPUs and memory that a node reports as its capacity."""
    if machine.missing_mib is not None:
        missing = machine.missing_mib + _SPREAD_MIB
    else:
        base, per_gib = EC2_FAMILIES[machine.family].missing_memory or (0, 0)
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
