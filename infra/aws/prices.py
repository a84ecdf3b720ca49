"""Price lines of an EKS platform. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator

from infra.aws.config import EksConfig
from infra.aws.pools import SYSTEM_DISK_GB, node_groups
from infra.cost.cost_estimate import Line, price_line

CLOUD = "aws"


def price_lines(platform: EksConfig) -> Iterator[Line]:
    """Yield the price lines of the platform."""
    region, system = platform.region, platform.system_pool
    gateways = len(platform.all_zones) if platform.network.nat_per_zone else 1
    yield price_line("cluster", CLOUD, region, "EKS control plane", 1)
    yield price_line("cluster", CLOUD, region, "NAT gateway", gateways)
    yield price_line("system", CLOUD, region, system.machine_type, system.nodes)
    yield price_line("system", CLOUD, region, "disk gp3 GB", SYSTEM_DISK_GB * system.nodes)
    for plan in node_groups(platform):
        spot = plan.model.is_spot
        if plan.model.is_capacity_block:
            yield price_line(plan.name, CLOUD, region, f"{plan.machine.name} in a capacity block", plan.nodes)
        else:
            yield price_line(plan.name, CLOUD, region, plan.machine.name, plan.nodes, spot=spot)
        disk = f"disk {plan.pool.disk_type} GB"
        yield price_line(plan.name, CLOUD, region, disk, plan.pool.disk_size_gb * plan.nodes, spot=spot)
