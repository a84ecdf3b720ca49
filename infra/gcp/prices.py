"""Price lines of a GKE platform. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator

from infra.cost.cost_estimate import Line, price_line
from infra.gcp.config import GkeConfig
from infra.gcp.pools import SYSTEM_DISK_GB, NodePoolPlan, num_nodes, pool_plans, system_disk_type, system_machine
from infra.hardware.gce import gce_family, gce_machine
from infra.hardware.machines import MachineType

CLOUD = "gcp"
NAT_VMS = 32
"""Number of nodes above which the hourly price of Cloud NAT is constant: https://cloud.google.com/nat/pricing"""


def price_lines(platform: GkeConfig) -> Iterator[Line]:
    """Yield the price lines of the platform at its maximum number of nodes."""
    region, nodes = platform.region, platform.system_pool.max_nodes
    yield price_line("cluster", CLOUD, region, "GKE control plane", 1)
    yield from _machine("system", region, gce_machine(system_machine(platform)), nodes)
    yield price_line("system", CLOUD, region, f"disk {system_disk_type(platform)} GB", SYSTEM_DISK_GB * nodes)
    for pool in platform.pools:
        # Provisioning models are alternatives. The first is preferred.
        plan, count = pool_plans(platform, pool)[0], num_nodes(pool)
        nodes += count
        yield from _pool(plan, region, count)
    yield price_line("cluster", CLOUD, region, "Cloud NAT per VM", min(nodes, NAT_VMS))
    yield price_line("cluster", CLOUD, region, "external address", 1)


def _pool(plan: NodePoolPlan, region: str, nodes: int) -> Iterator[Line]:
    # Flex-start nodes cost less than on-demand nodes, but their price is unknown. Use the on-demand price.
    spot, part = plan.model.is_spot, plan.pool.name
    if plan.tpu is not None:
        yield price_line(
            part, CLOUD, region, f"TPU {plan.tpu.generation} chip", nodes * plan.tpu.chips_per_host, spot=spot
        )
    else:
        yield from _machine(part, region, plan.machine, nodes, spot=spot)
        if plan.gpu is not None:
            name = f"{plan.gpu} with its share of the machine" if plan.family.pricing == "gpu" else plan.gpu
            yield price_line(part, CLOUD, region, name, nodes * plan.gpus, spot=spot)
    disk = f"disk {plan.disk_type} GB"
    yield price_line(part, CLOUD, region, disk, plan.pool.disk_size_gb * nodes, spot=spot)


def _machine(part: str, region: str, machine: MachineType, nodes: int, *, spot: bool = False) -> Iterator[Line]:
    # Google prices vCPUs and memory separately, at the same rates for every size of a family.
    family, series = machine.name.partition("-")[0], machine.name.rpartition("-")[0]
    pricing = gce_family(machine).pricing
    if pricing == "series":
        yield price_line(part, CLOUD, region, f"{series} vCPU with its memory", machine.vcpus * nodes, spot=spot)
    elif pricing == "parts":
        yield price_line(part, CLOUD, region, f"{family} vCPU", machine.vcpus * nodes, spot=spot)
        yield price_line(part, CLOUD, region, f"{family} GiB", machine.memory_gib * nodes, spot=spot)
    if machine.local_ssds:
        yield price_line(part, CLOUD, region, "local SSD 375 GB", machine.local_ssds * nodes, spot=spot)
