"""CPUs, memory and pods of EKS and GKE nodes: the reported capacity, and the part that pods can use."""

from __future__ import annotations

from infra.hardware import GIBIBYTE, KUBELET_EVICTION_BYTES, MEBIBYTE, Capacity
from infra.hardware.ec2 import EC2_FAMILIES, Ec2Machine
from infra.hardware.machines import MachineType, reserved_millicores

MAX_PODS = 110
"""Maximum number of pods of a node. Kubernetes recommends it, and EKS sets it on types with fewer than 30 vCPUs.

https://docs.aws.amazon.com/eks/latest/userguide/choosing-instance-type.html
"""

_EKS_KERNEL_MARGIN_MIB = 40
"""Additional memory in MiB that newer kernels reserve, compared with the measured kernels.

The difference was 33 MiB on a g5.8xlarge (aws/aws-k8s-tester pull request 471).
"""

HUGE_PAGES_PER_VCPU = 110
"""Huge pages of 2 MiB that the EFA driver allocates for each vCPU. A node has one page more.

Sources: 42242Mi on a p5.48xlarge and 21122Mi on a p4de.24xlarge (aws-samples/aws-do-eks), and HUGEPAGES_2MB_PER_CORE in
bottlerocket-core-kit sources/corndog. The EKS image installs the driver: awslabs/amazon-eks-ami 81fec2e,
templates/al2023/provisioners/install-efa.sh:53. No published figure of an AL2023 node was found.
"""

_GKE_PAGES_DIVISOR = 64
"""Memory divided by the size of its page descriptors. The kernel describes each 4 KiB page in 64 bytes."""
_GKE_KERNEL_MIB = 16
_GKE_BOUNCE_BUFFER_MIB = 64
"""Memory of the software I/O TLB, on machines of more than 3 GiB."""
_GKE_SMALL_MACHINE_MIB = 8
"""Additional reserved memory on machines of at most 8 GiB."""
_GKE_CORRECTION_SHARE, _GKE_MAX_CORRECTION_MIB = 0.00175, 248
_GKE_MARGIN_SHARE = 0.0077
"""Share of memory that the autoscaler expects but nodes do not report: 0.76 % on the node in GKE's documentation.

https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes: 13498416Ki allocatable of 16 GiB.
"""
_GKE_MEMORY_BANDS = ((4, 25), (4, 20), (8, 10), (112, 6), (2**20, 2))
"""Bands of memory in GiB, and the percentage of each band that GKE reserves."""


def interface_pods(machine: Ec2Machine) -> int:
    """Return the number of pods that get an address from a type's network interfaces.

    awslabs/amazon-eks-ami 81fec2e, nodeadm/internal/kubelet/eni_max_pods.go, calculateStandardMaxPods.
    """
    return machine.interfaces * (machine.addresses - 1) + 2


def reserved_addresses(machine: Ec2Machine) -> int:
    """Return the number of subnet addresses that a node with few pods reserves.

    aws-node keeps one complete network interface in reserve (WARM_ENI_TARGET=1), in addition to the pods' interface:
    aws/amazon-vpc-cni-k8s 0f77b52, docs/eni-and-ip-target.md. The count includes the primary address of each interface.
    EFA-only interfaces have no addresses.
    """
    return 2 * machine.addresses


def eks_pods(machine: Ec2Machine) -> int:
    """Return the maximum number of pods of a node, which Trainyard configures in the kubelet.

    Without prefix delegation, the addresses of its network interfaces limit a node's pods.
    """
    return min(interface_pods(machine), MAX_PODS)


def eks_capacity(machine: Ec2Machine) -> Capacity:
    """Return an estimate of the CPUs and memory that a node reports as its capacity."""
    if machine.missing_mib is not None:
        missing = machine.missing_mib + _EKS_KERNEL_MARGIN_MIB
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
    reserved = (255 + 11 * interface_pods(machine)) * MEBIBYTE + KUBELET_EVICTION_BYTES
    if fabric:
        reserved += 2 * (HUGE_PAGES_PER_VCPU * machine.vcpus + 1) * MEBIBYTE
    return capacity - Capacity(millicores=reserved_millicores(machine.vcpus), memory=reserved)


def gke_capacity(machine: MachineType) -> Capacity:
    """Return a lower bound of the CPUs and memory that a node with Container-Optimized OS reports.

    The constants are from kubernetes/autoscaler, cluster-autoscaler/cloudprovider/gce/gce_reserved.go,
    CalculateKernelReserved. Google's autoscaler must know a node's memory before the node exists.
    """
    memory = machine.capacity.memory
    kernel = memory // _GKE_PAGES_DIVISOR + _GKE_KERNEL_MIB * MEBIBYTE
    if memory > 3 * GIBIBYTE:
        kernel += _GKE_BOUNCE_BUFFER_MIB * MEBIBYTE
    if memory <= 8 * GIBIBYTE:
        kernel += _GKE_SMALL_MACHINE_MIB * MEBIBYTE
    kernel += min(int(memory * _GKE_CORRECTION_SHARE), _GKE_MAX_CORRECTION_MIB * MEBIBYTE)
    return Capacity(millicores=machine.capacity.millicores, memory=memory - kernel - int(memory * _GKE_MARGIN_SHARE))


def gke_allocatable(machine: MachineType) -> Capacity:
    """Return the capacity for pods of a node with at most 110 pods.

    GKE reserves shares of the reported memory, and the kubelet reserves another 100 MiB:
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes#resource_reservations. That page has no
    further reservation for machine types with GPUs or TPUs.
    """
    capacity = gke_capacity(machine)
    reserved, remaining = 0, capacity.memory
    for gibibytes, percent in _GKE_MEMORY_BANDS:
        band = min(remaining, gibibytes * GIBIBYTE)
        reserved += band * percent // 100
        remaining -= band
    return capacity - Capacity(millicores=reserved_millicores(machine.vcpus), memory=reserved + KUBELET_EVICTION_BYTES)
