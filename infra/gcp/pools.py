"""NodePoolPlan: the GKE node pools that the settings of a pool amount to, every default filled in. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from infra.gcp.config import GkeConfig, GkePoolConfig
from infra.hardware.gce import gce_machine, gpus_on
from infra.hardware.gpus import WITHOUT_CUDA_13
from infra.hardware.machines import MachineType
from infra.hardware.tpus import TpuSlice, is_tpu, tpu_slice
from infra.hardware.zones import NO_E2_ZONES

COMPACT_FAMILIES = ("a2-highgpu", "a2-ultragpu", "a3-highgpu", "a3-megagpu", "a3-ultragpu", "a4-highgpu")
"""Families that are placed compactly unless told otherwise."""
NEVER_COMPACT_FAMILIES = ("n1", "e2")
"""https://cloud.google.com/compute/docs/instances/use-compact-placement-policies#restrictions,
https://github.com/dstackai/dstack/issues/2591"""
HYPERDISK_ONLY_FAMILIES = ("a3-ultragpu", "a4-highgpu", "v6e", "v7x", "c4")
"""https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support"""
SYSTEM_DISK_GB = 100
"""Boot disk of each node of the system pool."""
LONGEST_RUN_HOURS = 168
"""https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""


@dataclass(frozen=True, kw_only=True)
class NodePoolPlan:
    """One GKE node pool."""

    name: str
    """Name in GKE."""
    pool: GkePoolConfig
    """The settings that it comes from."""
    rung: str
    """Its way to get capacity, one of the pool's."""
    ladder: bool
    """Whether there are others to try, so that a ComputeClass chooses."""
    machine: MachineType
    """Machine type."""
    gpu: str | None
    """GPU model of each node."""
    gpus: int
    """GPUs of each node."""
    tpu: TpuSlice | None
    """The slice that its nodes make, or that each of them is if it has one host."""
    nodes: int
    """Number of nodes, the most where it scales."""
    min_nodes: int | None
    """Least number where it scales; None for a fixed number."""
    zones: tuple[str, ...]
    """Zones of the nodes."""

    @property
    def multi_host(self) -> bool:
        """Whether its nodes are one TPU slice, all or nothing."""
        return self.tpu is not None and self.tpu.hosts > 1

    @property
    def gpu_driver(self) -> str:
        """The NVIDIA driver to install: GKE's default may be older than CUDA 13 asks, its latest may leave old GPUs.

        Seen at https://github.com/rapidsai/deployment/issues/656 and pull request 659 there; CUDA 13 asks for 580:
        https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html#cuda-driver
        """
        return self.pool.gpu_driver or ("default" if self.gpu in WITHOUT_CUDA_13 else "latest")

    @property
    def flexible(self) -> bool:
        """Whether Dynamic Workload Scheduler brings the nodes."""
        return self.rung in ("flex-start", "queued")

    @property
    def compact(self) -> bool:
        """Whether GPU nodes are placed close to each other."""
        if self.tpu is not None:
            return False
        if self.pool.compact is not None:
            return self.pool.compact
        fits = self.machine.family in COMPACT_FAMILIES and self.nodes > 1 and len(self.zones) == 1
        return fits and self.rung in ("on-demand", "spot")

    @property
    def disk_type(self) -> str:
        """Type of the boot disk."""
        if "disk_type" not in self.pool.model_fields_set and self.machine.family in HYPERDISK_ONLY_FAMILIES:
            return "hyperdisk-balanced"
        return self.pool.disk_type

    @property
    def max_run_hours(self) -> int | None:
        """Hours after which GKE removes a node."""
        return self.pool.max_run_hours or (LONGEST_RUN_HOURS if self.flexible else None)


def slice_of(pool: GkePoolConfig) -> TpuSlice | None:
    """The TPU slice of a pool; None for one without TPU. Raises ValueError for one that does not exist."""
    asked = "accelerator" in pool.model_fields_set
    return tpu_slice(pool.accelerator, pool.topology) if asked and is_tpu(pool.accelerator) else None


def hardware_of(pool: GkePoolConfig) -> tuple[MachineType, str | None, int]:
    """Machine type, GPU model and number of GPUs of each node. Raises ValueError for what does not go together."""
    found = slice_of(pool)
    if found is not None:
        return gce_machine(found.machine_type), None, 0
    machine = gce_machine(pool.machine_type)
    written = pool.model_fields_set
    # A machine type alone says all: it carries GPUs, or is for jobs on CPU.
    gpu = None if "machine_type" in written and "accelerator" not in written else pool.accelerator
    count = None if machine.gpu and "accelerators_per_node" not in written else pool.accelerators_per_node
    model, number = gpus_on(machine, gpu, count)
    return machine, model, number


def node_pools(config: GkeConfig) -> list[NodePoolPlan]:
    """Every GKE node pool for jobs, in the order of the settings. Raises ValueError as `hardware_of`."""
    return [plan for pool in config.pools for plan in pool_plans(config, pool)]


def pool_plans(config: GkeConfig, pool: GkePoolConfig) -> list[NodePoolPlan]:
    """The GKE node pools of one pool: one for each slice of several hosts, capacity, and zone where only one fits."""
    machine, gpu, gpus = hardware_of(pool)
    found = slice_of(pool)
    multi_host = found is not None and found.hosts > 1
    zones = pool.zones or (config.zone,)
    # The nodes of a slice, and those that are placed compactly, are in one zone.
    groups = [(zone,) for zone in zones] if multi_host or pool.compact else [zones]
    ladder = len(pool.capacity) * len(groups) > 1
    plans = []
    for index in range(pool.slices if multi_host else 1):
        for position, rung in enumerate(pool.capacity):
            for group in groups:
                parts = [pool.name]
                if multi_host and pool.slices > 1:
                    parts.append(str(index))
                if len(pool.capacity) > 1:
                    parts.append(f"{position}-{rung.partition(':')[0]}")
                if len(groups) > 1:
                    parts.append(group[0].rpartition("-")[2])
                plan = NodePoolPlan(
                    name="-".join(parts),
                    pool=pool,
                    rung=rung,
                    ladder=ladder,
                    machine=machine,
                    gpu=gpu,
                    gpus=gpus,
                    tpu=found,
                    nodes=num_nodes(pool) // (pool.slices if multi_host else 1),
                    min_nodes=_least(pool, rung, ladder),
                    zones=group,
                )
                plans.append(plan)
    return plans


def num_nodes(pool: GkePoolConfig) -> int:
    """Nodes of the pool, all slices together."""
    found = slice_of(pool)
    return pool.nodes if found is None else found.hosts * pool.slices


def _least(pool: GkePoolConfig, rung: str, ladder: bool) -> int | None:
    if pool.min_nodes is None and (ladder or rung in ("flex-start", "queued")):
        return 0
    return pool.min_nodes


def first_machine(config: GkeConfig) -> str:
    """Machine type of the pool that GKE makes with the cluster, and of the system pool where nothing else is said."""
    return "n1-standard-8" if config.zone in NO_E2_ZONES else "e2-standard-4"


def system_machine(config: GkeConfig) -> str:
    """Machine type of the system pool."""
    return config.system_pool.machine_type or first_machine(config)


def system_disk_type(config: GkeConfig) -> str:
    """Type of the boot disks of the system pool."""
    family = gce_machine(system_machine(config)).family
    return "hyperdisk-balanced" if family in HYPERDISK_ONLY_FAMILIES else "pd-balanced"
