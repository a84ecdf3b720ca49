"""Needed and remaining quota of a GKE platform under Google's names, and its price lines. No Pulumi."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from infra.cloud import QuotaNeeds
from infra.cost import Line, price_line
from infra.gcp.config import GkeConfig
from infra.gcp.pools import SYSTEM_DISK_GB, NodePoolPlan, num_nodes, pool_plans, system_disk_type, system_machine
from infra.hardware.gce import GceFamily, disk_quota, gce_family, gce_machine
from infra.hardware.gpus import GPUS
from infra.hardware.machines import MachineType
from infra.hardware.tpus import GENERATIONS
from infra.inventory import RunCommand

GCP_SOURCE = "https://cloud.google.com/compute/resource-usage#gpu_quota"
TPU_SOURCE = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#ensure-quota"


def quota_needs(platform: GkeConfig) -> QuotaNeeds:
    """Return quota -> amount that the platform needs.

    Each provisioning model of a pool counts separately, because GKE may use any of them. Reserved nodes count too,
    because a reservation uses the same quota.
    """
    needs: QuotaNeeds = Counter()
    system = gce_machine(system_machine(platform))
    needs.update(_vcpus(system, platform.system_pool.max_nodes))
    needs[(disk_quota(system_disk_type(platform)), "", GCP_SOURCE)] += SYSTEM_DISK_GB * platform.system_pool.max_nodes
    needs[("IN_USE_ADDRESSES", "", GCP_SOURCE)] += 1
    for pool in platform.pools:
        # One plan per provisioning model: its slices count together, and its zones are alternatives.
        first_plans = {plan.model: plan for plan in reversed(pool_plans(platform, pool))}
        for plan in first_plans.values():
            needs.update(_node_pool(replace(plan, nodes=num_nodes(pool))))
    return needs


def _node_pool(plan: NodePoolPlan) -> QuotaNeeds:
    """Return the needs of one pool's nodes."""
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
    needs.update(_vcpus(plan.machine, plan.nodes))
    return needs


def _vcpus(machine: MachineType, nodes: int) -> QuotaNeeds:
    """Return the needed vCPUs. Machines with accelerators need only the accelerators' quota."""
    quota = gce_family(machine).cpu_quota
    return Counter({(quota, "", GCP_SOURCE): nodes * machine.vcpus} if quota else {})


def quota_left(platform: GkeConfig, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
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


CLOUD = "gcp"
NAT_VMS = 32
"""Number of nodes above which the hourly price of Cloud NAT is constant: https://cloud.google.com/nat/pricing"""


def price_lines(platform: GkeConfig) -> Iterator[Line]:
    """Yield the price lines of the platform at its maximum number of nodes."""
    region, nodes = platform.region, platform.system_pool.max_nodes
    yield price_line("cluster", CLOUD, region, "GKE control plane", 1)
    yield from machine_lines("system", region, gce_machine(system_machine(platform)), nodes)
    yield price_line("system", CLOUD, region, f"disk {system_disk_type(platform)} GB", SYSTEM_DISK_GB * nodes)
    for pool in platform.pools:
        # Provisioning models are alternatives. The first is preferred.
        plan, count = pool_plans(platform, pool)[0], num_nodes(pool)
        nodes += count
        yield from _pool(plan, region, count)
    yield price_line("cluster", CLOUD, region, "Cloud NAT per VM", min(nodes, NAT_VMS))
    yield price_line("cluster", CLOUD, region, "external address", 1)


def _pool(plan: NodePoolPlan, region: str, nodes: int) -> Iterator[Line]:
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

    Google prices vCPUs and memory separately, at the same rates for every size of a family.
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
