"""Types of capacity and scheduling: Capacity, PodGroup, Scheduling. The other modules contain hardware tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from settings.kubernetes_values import format_cpu, format_memory

if TYPE_CHECKING:
    from infra.hardware.machines import NcclEnvironmentScript
    from infra.hardware.tpus import TpuSlice

MEBIBYTE = 2**20
GIBIBYTE = 2**30
KUBELET_EVICTION_BYTES = 100 * MEBIBYTE
"""Memory that the kubelet reserves: evictionHard memory.available.

https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#hard-eviction-thresholds
"""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """CPUs and memory of a machine or node, or the CPUs and memory that one host of a job requests."""

    millicores: int
    """Thousandths of a CPU."""
    memory: int
    """Bytes."""

    def __sub__(self, other: Capacity) -> Capacity:
        return Capacity(millicores=self.millicores - other.millicores, memory=self.memory - other.memory)

    def __str__(self) -> str:
        return f"{format_cpu(self.millicores)} CPU and {format_memory(self.memory)}"


@dataclass(frozen=True, kw_only=True)
class PoolCapacity:
    """Capacity of a pool of identical nodes, minus the requests of jobs that are neither queued nor suspended."""

    name: str
    free: Capacity
    """CPUs and memory that queued jobs can request."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Accelerators and network adapters, by Kubernetes resource."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes, by which pods select this pool."""
    on_request: bool = False
    """True if the cloud creates nodes only on request, all nodes of a job together."""
    taint: str | None = None
    """Key of the nodes' taint. Only pods that request accelerators tolerate this taint."""


@dataclass(frozen=True, kw_only=True)
class PodGroup:
    """Identical pods of a job, and the requests of each."""

    job: int = 0
    """Index of the job in its stack."""
    count: int
    """Number of pods."""
    per_pod: Capacity
    """CPUs and memory of each pod."""
    accelerator: str | None = None
    """GPU model, TPU type or generation; None for pods on CPU."""
    tpu: TpuSlice | None = None
    accelerators: int = 0
    """GPUs or TPU chips of each pod."""
    key: str = "hosts"
    """Settings key of the job with the number of pods."""
    role: str = ""
    """Name of pods that are not hosts, such as `launcher` or `parameter servers`; empty for hosts.

    These pods may run on any node without accelerators, in several pools.
    """
    is_queued: bool = False
    """True if a queue admits the job. The job may wait until earlier jobs are done."""
    is_suspended: bool = False
    """True if the job does not run now. It must fit on an empty platform, but need not fit next to other jobs."""

    @property
    def runs(self) -> bool:
        """True if the job is neither queued nor suspended, and therefore starts immediately."""
        return not (self.is_queued or self.is_suspended)


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """Scheduling fields of a job's pods. A job on CPU has at most the node selector and tolerations of its pool."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes."""
    tolerations: Sequence[Mapping[str, str]] = ()
    """Tolerations in Kubernetes' format."""
    accelerator_resource: str | None = None
    """Kubernetes resource of the accelerators, such as `nvidia.com/gpu`; None without accelerators."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the pods, such as the networks of their accelerators."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Further Kubernetes resource, such as network adapters -> count for each host."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the trainer's image needs on these nodes. Jobs with a user's image do not get them, because that
    image may need other values."""
    nccl_environment: NcclEnvironmentScript | None = None
    """NCCL environment script that a job's command sources first; None if the hosts have no script."""


def this_machine() -> Capacity:
    """Return the CPUs that this process may use and the memory of this machine."""
    return Capacity(
        millicores=len(os.sched_getaffinity(0)) * 1000, memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )


def reserved_for_other_nodes(machine: Capacity, num_nodes: int) -> Capacity:
    """Return the part that each of `num_nodes` equal nodes on one machine reserves for the other nodes."""
    return machine - Capacity(millicores=machine.millicores // num_nodes, memory=machine.memory // num_nodes)


def node_share(machine: Capacity, num_nodes: int) -> Capacity:
    """Return the capacity for pods of each of `num_nodes` equal nodes on one machine."""
    share = machine - reserved_for_other_nodes(machine, num_nodes)
    return replace(share, memory=max(0, share.memory - KUBELET_EVICTION_BYTES))


def hosts_that_fit(per_host: Capacity, node: Capacity) -> int:
    """Return the number of a job's hosts that one node can run."""
    return min(node.millicores // per_host.millicores, node.memory // per_host.memory)


def first_that_does_not_fit(groups: Sequence[PodGroup], node: Capacity, num_nodes: int) -> int | None:
    """Return the index of the first group that does not fit, or None if all groups fit together.

    Each pod goes to the node with the fewest pods of its group. If several nodes qualify, it goes to the emptiest.
    """
    free = [node] * num_nodes
    for position, group in enumerate(groups):
        used = [0] * num_nodes
        for _ in range(group.count):
            target = min(range(num_nodes), key=lambda i: (used[i], -free[i].millicores, -free[i].memory))
            if hosts_that_fit(group.per_pod, free[target]) < 1:
                return position
            used[target] += 1
            free[target] -= group.per_pod
    return None
