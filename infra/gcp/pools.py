"""Node pools of a GKE cluster: plans, fabrics, capacity, quota and prices."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv4Network

from infra.capacity import SYSTEM, PoolNodes
from infra.cloud import QuotaNeeds
from infra.cost import Line, price_line
from infra.gcp.config import GkeConfig, GkePoolConfig
from infra.hardware import Capacity
from infra.hardware.gce import GceFamily, disk_quota, gce_family, gce_machine, gpus_on
from infra.hardware.gpus import GPUS, MISSING_MACHINE_FAMILIES
from infra.hardware.machines import MachineType, NcclEnvironmentScript, ProvisioningModel
from infra.hardware.node_capacity import gke_allocatable
from infra.hardware.tpus import GENERATIONS, TpuSlice
from infra.hardware.versions import is_in_extended_support
from infra.inventory import RunCommand

CLOUD = "gcp"
SYSTEM_MACHINES = ("e2-standard-4", "n1-standard-8")
"""Default machine types of system nodes. A zone uses the first type that it offers."""
SYSTEM_DISK_GB = 100
"""Boot disk size of system nodes."""
MAX_RUN_HOURS = 168
"""Maximum run duration: https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""
SUBNET_PREFIX = 20
"""Prefix length of each additional subnet. A /20 has addresses for 4,092 nodes."""
DAEMON_REQUESTS = Capacity(millicores=450, memory=768 * 2**20)
"""Requests of the agents on every GKE node: 426 to 443 millicores and up to 596 MiB on measured CPU nodes.

Source: 2i2c-org/infrastructure 1097ae3, deployer/commands/generate/resource_allocation/node-capacity-info.json. A node
of GKE v1.36 requested 384 millicores and 626 MiB (October 2026). Agents for GPUs request more.
"""
GPU_LABEL = "cloud.google.com/gke-accelerator"
"""Label of nodes with their GPU model: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus"""
DRIVER_LIBRARIES = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
"""Variable with the folder of the NVIDIA driver on GKE nodes. The trainer image does not search this folder by default.

https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda
"""
GCP_SOURCE = "https://cloud.google.com/compute/resource-usage#gpu_quota"
TPU_SOURCE = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#ensure-quota"
PODS_PER_NODE = 32
"""Maximum number of pods of a node for jobs. A node reserves twice as many addresses:
https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""
NAT_VMS = 32
"""Number of nodes above which the hourly price of Cloud NAT is constant: https://cloud.google.com/nat/pricing"""


@dataclass(frozen=True, kw_only=True)
class NodePoolPlan:
    """Plan of a GKE node pool. A pool in the settings can need several plans."""

    name: str
    """Name in GKE."""
    pool: GkePoolConfig
    model: ProvisioningModel
    has_fallback: bool
    """True if several node pools are alternatives (provisioning models or zones). A ComputeClass chooses one."""
    machine: MachineType
    gpu: str | None
    gpus: int
    """GPUs of each node."""
    nodes: int
    """Number of nodes, the maximum if the pool scales."""
    min_nodes: int | None
    """Minimum number of nodes if the pool scales; None for a fixed number."""
    zones: tuple[str, ...]

    @property
    def family(self) -> GceFamily:
        """Family of the machine type."""
        return gce_family(self.machine)

    @property
    def tpu(self) -> TpuSlice | None:
        """TPU slice of all nodes together, or of each node if a slice has one host."""
        return self.pool.tpu

    @property
    def multi_host(self) -> bool:
        """True if the nodes form one TPU slice, which GKE provisions as a whole."""
        return self.tpu is not None and self.tpu.hosts > 1

    @property
    def gpu_driver(self) -> str:
        """NVIDIA driver version to install.

        GKE's default driver can be too old for CUDA 13. GKE's latest driver may not support old GPUs:
        https://github.com/rapidsai/deployment/issues/656 and its pull request 659. CUDA 13 needs driver 580:
        https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html#cuda-driver
        """
        return self.pool.gpu_driver or ("latest" if self.gpu is None or GPUS[self.gpu].runs_cuda_13 else "default")

    @property
    def compact(self) -> bool:
        """True if nodes without TPUs have compact placement."""
        if self.tpu is not None:
            return False
        if self.pool.compact is not None:
            return self.pool.compact
        is_supported = self.family.compact == "default" and self.nodes > 1 and len(self.zones) == 1
        return is_supported and not (self.model.is_flexible or self.model.is_reserved)

    @property
    def disk_type(self) -> str:
        """Type of the boot disk."""
        if "disk_type" not in self.pool.model_fields_set and self.family.disks == "hyperdisk":
            return "hyperdisk-balanced"
        return self.pool.disk_type

    @property
    def max_run_hours(self) -> int | None:
        """Hours after which GKE deletes a node."""
        return self.pool.max_run_hours or (MAX_RUN_HOURS if self.model.is_flexible else None)


def hardware_of(pool: GkePoolConfig) -> tuple[MachineType, str | None, int]:
    """Return each node's machine type, GPU model and GPU count. Raises ValueError for invalid combinations."""
    if pool.tpu:
        return gce_machine(pool.tpu.machine_type), None, 0
    machine = gce_machine(pool.machine_type)
    keys = pool.model_fields_set
    # A machine type without `accelerator` selects its built-in GPUs, or a CPU pool.
    gpu = None if "machine_type" in keys and "accelerator" not in keys else pool.accelerator
    count = None if machine.gpu and "accelerators_per_node" not in keys else pool.accelerators_per_node
    model, number = gpus_on(machine, gpu, count)
    return machine, model, number


def node_pools(config: GkeConfig) -> list[NodePoolPlan]:
    """Return all GKE node pools for jobs, in the settings' order. Raises ValueError like `hardware_of`."""
    return [plan for pool in config.pools for plan in pool_plans(config, pool)]


def pool_plans(config: GkeConfig, pool: GkePoolConfig) -> list[NodePoolPlan]:
    """Return the GKE node pools of a pool: one for each multi-host slice and provisioning model.

    If the nodes must share a zone, each zone has a separate node pool.
    """
    machine, gpu, num_gpus = hardware_of(pool)
    multi_host = pool.tpu is not None and pool.tpu.hosts > 1
    zones = pool.zones or (config.zone,)
    # Nodes of a slice, and nodes with compact placement, must be in one zone.
    zone_groups = [(zone,) for zone in zones] if multi_host or pool.compact else [zones]
    has_fallback = len(pool.models) * len(zone_groups) > 1
    plans = []
    for index in range(pool.slices if multi_host else 1):
        for position, model in enumerate(pool.models):
            for zone_group in zone_groups:
                parts = [pool.name]
                # The first slice keeps its name and nodes if the number of slices changes.
                if index > 0:
                    parts.append(str(index))
                if len(pool.models) > 1:
                    parts.append(f"{position}-{model.kind}")
                if len(zone_groups) > 1:
                    parts.append(zone_group[0].rpartition("-")[2])
                plan = NodePoolPlan(
                    name="-".join(parts),
                    pool=pool,
                    model=model,
                    has_fallback=has_fallback,
                    machine=machine,
                    gpu=gpu,
                    gpus=num_gpus,
                    nodes=num_nodes(pool) // (pool.slices if multi_host else 1),
                    min_nodes=_min_nodes(pool, model, has_fallback=has_fallback),
                    zones=zone_group,
                )
                plans.append(plan)
    return plans


def num_nodes(pool: GkePoolConfig) -> int:
    """Return the number of a pool's nodes, in all slices together."""
    return pool.tpu.hosts * pool.slices if pool.tpu else pool.nodes


def _min_nodes(pool: GkePoolConfig, model: ProvisioningModel, *, has_fallback: bool) -> int | None:
    if pool.min_nodes is None and (has_fallback or model.is_flexible):
        return 0
    return pool.min_nodes


def default_pool_machine(config: GkeConfig) -> str:
    """Return the machine type of GKE's default pool. It is also the default of the system pool."""
    missing = MISSING_MACHINE_FAMILIES.get(config.zone, frozenset())
    return next(name for name in SYSTEM_MACHINES if gce_machine(name).family not in missing)


def system_machine(config: GkeConfig) -> str:
    """Return the machine type of the system pool."""
    return config.system_pool.machine_type or default_pool_machine(config)


def system_disk_type(config: GkeConfig) -> str:
    """Return the boot disk type of the system pool."""
    family = gce_family(gce_machine(system_machine(config)))
    return "hyperdisk-balanced" if family.disks == "hyperdisk" else "pd-balanced"


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
    """Additional networks that connect the GPUs of different A3 or A4 hosts."""

    mtu: int
    """Maximum packet size of the VPCs, in bytes."""
    interfaces: tuple[Interface, ...]
    """Interfaces of a host, in order."""
    rdma_profile: str | None = None
    """Name of the RDMA VPC's network profile, without its zone prefix."""
    nccl_environment: NcclEnvironmentScript | None = None
    """NCCL environment script that Google's installer puts on hosts.

    None if the script would need a privileged daemon in each pod.
    """

    @property
    def vpcs(self) -> tuple[str, ...]:
        """Name suffixes of the VPCs."""
        return tuple(dict.fromkeys(interface.vpc for interface in self.interfaces))


def _ethernet_interfaces(count: int) -> tuple[Interface, ...]:
    names = [f"gpu-nic-{index}" for index in range(count)]
    return tuple(Interface(name=name, vpc=name, device_mode="NetDevice") for name in names)


GIB_PLUGIN = NcclEnvironmentScript(
    claim="gib",
    folder="/home/kubernetes/bin/gib",
    mount="/usr/local/gib",
    script="/usr/local/gib/scripts/set_nccl_env.sh",
)
"""gIB: NCCL plug-in for RDMA with Google's tuning.

https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom#configure-pod-manifests-rdma
"""
_RDMA = Fabric(
    mtu=8896,
    nccl_environment=GIB_PLUGIN,
    interfaces=(
        Interface(name="gvnic-1", vpc="gvnic-1", device_mode="NetDevice"),
        *(Interface(name=f"rdma-{index}", vpc="rdma", device_mode="RDMA") for index in range(8)),
    ),
    rdma_profile="vpc-roce",
)

FABRICS: Mapping[str, Fabric] = {
    "tcpx": Fabric(mtu=8244, interfaces=_ethernet_interfaces(4)),
    "tcpxo": Fabric(mtu=8244, interfaces=_ethernet_interfaces(8)),
    "rdma": _RDMA,
}
"""Fabrics by their name in a `GceFamily`: GPUDirect-TCPX, -TCPXO and -RDMA.

https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx,
https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom,
https://cloud.google.com/vpc/docs/rdma-network-profiles
"""


def machine_fabric(machine: MachineType) -> Fabric | None:
    """Return the fabric of a machine type, or None. Only types with the most GPUs of their family have a fabric."""
    family = gce_family(machine)
    is_whole_host = machine.gpus == max(each.gpus for each in family.machines)
    return FABRICS[family.fabric] if family.fabric is not None and is_whole_host else None


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


def pool_nodes(platform: GkeConfig) -> list[PoolNodes]:
    """Return the nodes of each pool, with the system pool last."""
    pools = []
    for pool in platform.pools:
        # All plans of a pool have identical nodes. Plans for several models or zones are alternatives.
        plan = pool_plans(platform, pool)[0]
        node = gke_allocatable(plan.machine) - DAEMON_REQUESTS
        pools.append(
            PoolNodes(
                name=pool.name,
                nodes=num_nodes(pool),
                node=node,
                gpu=plan.gpu,
                gpus=plan.gpus,
                tpu=plan.tpu,
                queued=pool.models[0].is_queued,
                has_fallback=plan.has_fallback,
                pods=PODS_PER_NODE,
                zones=plan.zones,
                keeps_idle=plan.min_nodes != 0 and plan.max_run_hours is None,
            )
        )
    system = gke_allocatable(gce_machine(system_machine(platform))) - DAEMON_REQUESTS
    return [*pools, PoolNodes(name=SYSTEM, nodes=platform.system_pool.max_nodes, node=system)]


def quota_needs(platform: GkeConfig) -> QuotaNeeds:
    """Return quota -> amount that the platform needs.

    Each provisioning model of a pool counts separately, because GKE may use any of them. Reserved nodes count too,
    because a reservation uses the same quota.
    """
    needs: QuotaNeeds = Counter()
    system = gce_machine(system_machine(platform))
    needs.update(_vcpu_needs(system, platform.system_pool.max_nodes))
    needs[(disk_quota(system_disk_type(platform)), "", GCP_SOURCE)] += SYSTEM_DISK_GB * platform.system_pool.max_nodes
    needs[("IN_USE_ADDRESSES", "", GCP_SOURCE)] += 1
    for pool in platform.pools:
        # One plan per provisioning model: its slices count together, and its zones are alternatives.
        first_plans = {plan.model: plan for plan in reversed(pool_plans(platform, pool))}
        for plan in first_plans.values():
            needs.update(_pool_needs(replace(plan, nodes=num_nodes(pool))))
    return needs


def _pool_needs(plan: NodePoolPlan) -> QuotaNeeds:
    """Return quota -> amount that the nodes of a plan need."""
    needs: QuotaNeeds = Counter()
    preemptible = "PREEMPTIBLE_" if plan.model.is_spot or plan.model.is_flexible else ""
    if plan.disk_type != "pd-standard":
        needs[(disk_quota(plan.disk_type), "", GCP_SOURCE)] += plan.pool.disk_size_gb * plan.nodes
    if plan.tpu is not None:
        quota = GENERATIONS[plan.tpu.generation].quota
        needs[(preemptible + quota, "", TPU_SOURCE)] += plan.nodes * plan.tpu.chips_per_host
    elif plan.gpu is not None and (quota := GPUS[plan.gpu].gce_quota or ""):
        needs[(preemptible + quota, "", GCP_SOURCE)] += plan.nodes * plan.gpus
        if not preemptible:
            needs[("GPUS_ALL_REGIONS", "global", GCP_SOURCE)] += plan.nodes * plan.gpus
    needs.update(_vcpu_needs(plan.machine, plan.nodes))
    return needs


def _vcpu_needs(machine: MachineType, nodes: int) -> QuotaNeeds:
    """Return quota -> vCPUs that machines need. It is empty for machines with built-in accelerators."""
    quota = gce_family(machine).cpu_quota
    return Counter({(quota, "", GCP_SOURCE): nodes * machine.vcpus} if quota else {})


def remaining_quota(platform: GkeConfig, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
    """Return the remaining quota by name and location, from Compute Engine's limits and usage.

    https://cloud.google.com/compute/resource-usage. Not yet tested on a cloud account.
    """
    gcloud = ("gcloud", "compute")
    options = (f"--project={platform.project}", "--format=json(quotas)")
    regional = run_json(*gcloud, "regions", "describe", platform.region, *options)["quotas"]
    worldwide = run_json(*gcloud, "project-info", "describe", *options)["quotas"]
    return {
        (quota["metric"], location): int(quota["limit"] - quota["usage"])
        for location, quotas in ((platform.region, regional), ("global", worldwide))
        for quota in quotas
    }


def price_lines(platform: GkeConfig) -> Iterator[Line]:
    """Yield the price lines of the platform at its maximum number of nodes."""
    region, nodes = platform.region, platform.system_pool.max_nodes
    yield price_line("cluster", CLOUD, region, "GKE control plane", 1)
    if is_in_extended_support(platform.kubernetes_version, platform.release_channel, datetime.now(tz=UTC).date()):
        yield price_line("cluster", CLOUD, region, "GKE extended support", 1)
    yield from machine_lines("system", region, gce_machine(system_machine(platform)), nodes)
    yield price_line("system", CLOUD, region, f"disk {system_disk_type(platform)} GB", SYSTEM_DISK_GB * nodes)
    for pool in platform.pools:
        # Provisioning models are alternatives. The estimate uses the most expensive one: any except spot.
        plan, count = min(pool_plans(platform, pool), key=lambda plan: plan.model.is_spot), num_nodes(pool)
        nodes += count
        yield from _pool_lines(plan, region, count)
    yield price_line("cluster", CLOUD, region, "Cloud NAT per VM", min(nodes, NAT_VMS))
    yield price_line("cluster", CLOUD, region, "external address", 1)


def _pool_lines(plan: NodePoolPlan, region: str, nodes: int) -> Iterator[Line]:
    # Use the on-demand price for flex-start nodes. They cost less, but the price is unknown.
    spot, part = plan.model.is_spot, plan.pool.name
    if plan.tpu is not None:
        yield tpu_line(part, region, plan.tpu.generation, nodes * plan.tpu.chips_per_host, spot=spot)
    else:
        yield from machine_lines(part, region, plan.machine, nodes, spot=spot)
        if plan.gpu is not None:
            yield gpu_line(part, region, plan.gpu, plan.family, nodes * plan.gpus, spot=spot)
    disk = f"disk {plan.disk_type} GB"
    yield price_line(part, CLOUD, region, disk, plan.pool.disk_size_gb * nodes, spot=spot)


def tpu_line(part: str, region: str, generation: str, chips: int, *, spot: bool = False) -> Line:
    """Return the price line of TPU chips, which includes their hosts."""
    return price_line(part, CLOUD, region, f"TPU {generation} chip", chips, spot=spot)


def gpu_line(part: str, region: str, gpu: str, family: GceFamily, gpus: int, *, spot: bool = False) -> Line:
    """Return the price line of GPUs, which includes their machines for some families."""
    name = f"{gpu} with its share of the machine" if family.pricing == "gpu" else gpu
    return price_line(part, CLOUD, region, name, gpus, spot=spot)


def machine_lines(part: str, region: str, machine: MachineType, nodes: int, *, spot: bool = False) -> Iterator[Line]:
    """Yield the price lines of machines without their GPUs and boot disks.

    Google prices vCPUs and memory separately, at the same rates for every size of a family. For families with known
    prices of whole machines only, a vCPU's price includes its memory.
    """
    family, series = machine.name.partition("-")[0], machine.name.rpartition("-")[0]
    pricing = gce_family(machine).pricing
    if pricing == "series":
        yield price_line(part, CLOUD, region, f"{series} vCPU with its memory", machine.vcpus * nodes, spot=spot)
    elif pricing == "parts":
        yield price_line(part, CLOUD, region, f"{family} vCPU", machine.vcpus * nodes, spot=spot)
        yield price_line(part, CLOUD, region, f"{family} GiB", machine.memory_gib * nodes, spot=spot)
    if machine.local_ssds:
        yield price_line(part, CLOUD, region, "local SSD 375 GB", machine.local_ssds * nodes, spot=spot)
