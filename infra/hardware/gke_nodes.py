"""CPUs and memory that a GKE node reports, without the share of the kernel and GKE. Pure."""

from __future__ import annotations

from infra.hardware.capacity import KUBELET_EVICTION_BYTES, MEBIBYTE, Capacity
from infra.hardware.machines import GIBIBYTE, MachineType, kept_cpu

_PAGES_DIVISOR = 64
"""Divisor of the memory for page descriptors. The kernel describes each 4 KiB page in 64 bytes."""
_KERNEL_MIB = 16
_BOUNCE_BUFFER_MIB = 64
"""Memory of the software I/O TLB, on machines of more than 3 GiB."""
_SMALL_MACHINE_MIB = 8
"""Additional reserved memory on machines of at most 8 GiB."""
_CORRECTION_SHARE, _MOST_CORRECTION_MIB = 0.00175, 248
_SPREAD_SHARE = 0.0077
"""Share of memory that nodes report less than the autoscaler expects: 0.76 % on the node in GKE's documentation.

https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes: 13498416Ki allocatable of 16 GiB.
"""
_MEMORY_BANDS = ((4, 25), (4, 20), (8, 10), (112, 6), (2**20, 2))
"""Bands of memory in GiB, and the percentage of each band that GKE reserves."""


def gke_capacity(machine: MachineType) -> Capacity:
    """Return a lower bound of the CPUs and memory that a node with Container-Optimized OS reports.

    The constants above are those of kubernetes/autoscaler, cluster-autoscaler/cloudprovider/gce/gce_reserved.go,
    CalculateKernelReserved. Google's autoscaler must know a node's memory before the node exists.
    """
    memory = machine.capacity.memory
    kernel = memory // _PAGES_DIVISOR + _KERNEL_MIB * MEBIBYTE
    if memory > 3 * GIBIBYTE:
        kernel += _BOUNCE_BUFFER_MIB * MEBIBYTE
    if memory <= 8 * GIBIBYTE:
        kernel += _SMALL_MACHINE_MIB * MEBIBYTE
    kernel += min(int(memory * _CORRECTION_SHARE), _MOST_CORRECTION_MIB * MEBIBYTE)
    return Capacity(
        millicores=machine.capacity.millicores,
        memory=memory - kernel - int(memory * _SPREAD_SHARE),
    )


def gke_allocatable(machine: MachineType) -> Capacity:
    """Return the capacity for pods of a node with at most 110 pods.

    GKE reserves shares of the memory that the node reports, and the kubelet reserves another 100 MiB:
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes#resource_reservations. That page has no
    further reservation for machine types with GPUs or TPUs.
    """
    capacity = gke_capacity(machine)
    kept, left = 0, capacity.memory
    for gibibytes, percent in _MEMORY_BANDS:
        band = min(left, gibibytes * GIBIBYTE)
        kept += band * percent // 100
        left -= band
    if machine.memory_gib < 1:
        kept = 255 * MEBIBYTE
    return Capacity(
        millicores=capacity.millicores - kept_cpu(machine.vcpus),
        memory=capacity.memory - kept - KUBELET_EVICTION_BYTES,
    )
