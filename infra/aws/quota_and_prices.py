"""Needed and remaining quota of an EKS platform under AWS's names, and its price lines. No Pulumi."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.aws.config import EksConfig
from infra.aws.pools import SYSTEM_DISK_GB, node_groups
from infra.cloud import QuotaNeeds
from infra.cost import Line, price_line
from infra.hardware.ec2 import EC2_FAMILIES, Ec2Machine, ec2_machine
from infra.inventory import RunCommand

SOURCE = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"


def quota_needs(platform: EksConfig) -> QuotaNeeds:
    """Return quota -> amount that the platform needs. Reserved instances count, but capacity blocks do not."""
    needs: QuotaNeeds = Counter()
    system = ec2_machine(platform.system_pool.machine_type)
    needs[(_ec2_quota(system, spot=False), "", SOURCE)] += system.vcpus * platform.system_pool.nodes
    for plan in node_groups(platform):
        if plan.model.is_capacity_block:
            continue
        name = _ec2_quota(plan.machine, spot=plan.model.is_spot)
        needs[(name, "", SOURCE)] += plan.nodes * plan.machine.vcpus
    return needs


def _ec2_quota(machine: Ec2Machine, *, spot: bool) -> str:
    family = EC2_FAMILIES[machine.family]
    quota = family.spot_quota if spot else family.on_demand_quota
    return f"{quota.code} {quota.name} (vCPUs)"


def quota_left(platform: EksConfig, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
    """Return the remaining quota by name and location, from EC2's limits and CloudWatch's usage.

    https://docs.aws.amazon.com/servicequotas/latest/userguide/. Not yet tested on a cloud account.
    """
    options = (f"--region={platform.region}", "--output=json")
    names = {name.partition(" ")[0]: name for name, _, _ in quota_needs(platform)}
    remaining = {}
    for code, name in names.items():
        quota = run_json(
            "aws", "service-quotas", "get-service-quota", "--service-code=ec2", f"--quota-code={code}", *options
        )
        metric = quota["Quota"].get("UsageMetric")
        used = _usage(metric, options, run_json) if metric else 0
        remaining[(name, platform.region)] = int(quota["Quota"]["Value"]) - used
    return remaining


def _usage(metric: Mapping[str, Any], options: tuple[str, ...], run_json: RunCommand) -> int:
    """Return the vCPUs in use, from CloudWatch.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-Quotas-Visualize-Alarms.html
    """
    dimensions = [f"Name={name},Value={value}" for name, value in metric["MetricDimensions"].items()]
    now = datetime.now(tz=UTC)
    statistics = run_json(
        *("aws", "cloudwatch", "get-metric-statistics"),
        f"--namespace={metric['MetricNamespace']}",
        f"--metric-name={metric['MetricName']}",
        "--period=300",
        "--statistics=Maximum",
        f"--start-time={(now - timedelta(hours=1)).isoformat()}",
        f"--end-time={now.isoformat()}",
        "--dimensions",
        *dimensions,
        *options,
    )
    return int(max((point["Maximum"] for point in statistics["Datapoints"]), default=0))


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
