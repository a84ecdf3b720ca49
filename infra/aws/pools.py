"""NodeGroupPlan: plan of an EKS node group. Capacity, scheduling, quota and prices of all pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from infra.aws.config import EksConfig, EksPoolConfig
from infra.capacity import SYSTEM, PoolNodes
from infra.cloud import QuotaNeeds
from infra.cost import Line, price_line
from infra.hardware import Capacity
from infra.hardware.ec2 import EC2_FAMILIES, Ec2Machine, ec2_machine
from infra.hardware.machines import ProvisioningModel
from infra.hardware.node_capacity import eks_allocatable, eks_pods
from infra.inventory import RunCommand

CLOUD = "aws"
"""Name of the cloud in the price table."""
QUOTA_SOURCE = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"
USAGE_WINDOW = timedelta(minutes=15)
"""Maximum age of the usage that the quota check reads. Without newer usage, the check assumes no usage."""
SYSTEM_DISK_GB = 100
"""Boot disk size of system nodes."""
DISK_IOPS = 3000
"""Operations a second of each boot disk."""
INTERFACE_ENDPOINTS = ("ecr.api", "ecr.dkr")
"""Services with an interface endpoint in each zone."""
DAEMON_REQUESTS = Capacity(millicores=300, memory=512 * 2**20)
"""Estimated requests of the agents (network, logs, metrics, devices) on an EKS node. Not measured."""


@dataclass(frozen=True, kw_only=True)
class NodeGroupPlan:
    """Plan of a managed node group."""

    name: str
    """Name in EKS."""
    pool: EksPoolConfig
    machine: Ec2Machine
    zones: tuple[str, ...]
    efa: bool
    """True if each node has all Elastic Fabric Adapters of its type."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.pool.nodes

    @property
    def model(self) -> ProvisioningModel:
        """Provisioning model of the nodes."""
        return self.pool.model

    @property
    def placement_group(self) -> bool:
        """True if the stack creates a cluster placement group for the nodes.

        Reserved nodes do not get one by default. A reservation belongs to one placement group or none, and has no
        capacity in a new group: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html

        AWS's samples do not create a group either: awslabs/awsome-distributed-ai pull request 353.
        """
        if self.pool.placement_group is not None:
            return self.pool.placement_group
        return self.efa and self.model.reservation is None


def node_groups(config: EksConfig) -> list[NodeGroupPlan]:
    """Return all node groups for jobs, in the settings' order. Raises ValueError for an unknown instance type."""
    return [group_plan(config, pool) for pool in config.pools]


def group_plan(config: EksConfig, pool: EksPoolConfig) -> NodeGroupPlan:
    """Return the node group of one pool."""
    machine = ec2_machine(pool.machine_type)
    efa = machine.efa_interfaces > 0 and pool.nodes > 1 if pool.efa is None else pool.efa
    needs_one_zone = efa or pool.placement_group or pool.model.reservation
    zones = pool.zones or (config.all_zones[:1] if needs_one_zone else config.all_zones)
    return NodeGroupPlan(name=pool.name, pool=pool, machine=machine, zones=zones, efa=efa)


def pool_nodes(platform: EksConfig) -> list[PoolNodes]:
    """Return the nodes of each pool, with the system pool last."""
    pools = [
        PoolNodes(
            name=plan.name,
            nodes=plan.nodes,
            node=eks_allocatable(plan.machine, fabric=plan.efa) - DAEMON_REQUESTS,
            pods=eks_pods(plan.machine),
            gpu=plan.machine.gpu,
            gpus=plan.machine.gpus,
            adapters=plan.machine.efa_interfaces if plan.efa else 0,
            zones=plan.zones,
        )
        for plan in node_groups(platform)
    ]
    machine = ec2_machine(platform.system_pool.machine_type)
    system = eks_allocatable(machine) - DAEMON_REQUESTS
    nodes = platform.system_pool.nodes
    return [*pools, PoolNodes(name=SYSTEM, nodes=nodes, node=system, pods=eks_pods(machine))]


def quota_needs(platform: EksConfig) -> QuotaNeeds:
    """Return quota -> vCPUs that the platform needs. Nodes in a capacity block need no quota."""
    needs: QuotaNeeds = Counter()
    system = ec2_machine(platform.system_pool.machine_type)
    needs[(_ec2_quota(system, spot=False), "", QUOTA_SOURCE)] += system.vcpus * platform.system_pool.nodes
    for plan in node_groups(platform):
        if plan.model.is_capacity_block:
            continue
        name = _ec2_quota(plan.machine, spot=plan.model.is_spot)
        needs[(name, "", QUOTA_SOURCE)] += plan.nodes * plan.machine.vcpus
    return needs


def _ec2_quota(machine: Ec2Machine, *, spot: bool) -> str:
    quota = EC2_FAMILIES[machine.family].quotas[spot]
    return f"{quota.code} {quota.name} (vCPUs)"


def remaining_quota(platform: EksConfig, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
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
    """Return the newest number of vCPUs in use, from CloudWatch, which collects usage every minute.

    An older number would count nodes that `make down` has deleted.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-Usage-Metrics.html

    CloudWatch returns the numbers in no particular order:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricStatistics.html
    """
    dimensions = [f"Name={name},Value={value}" for name, value in metric["MetricDimensions"].items()]
    now = datetime.now(tz=UTC)
    statistics = run_json(
        *("aws", "cloudwatch", "get-metric-statistics"),
        f"--namespace={metric['MetricNamespace']}",
        f"--metric-name={metric['MetricName']}",
        "--period=60",
        "--statistics=Maximum",
        f"--start-time={(now - USAGE_WINDOW).isoformat()}",
        f"--end-time={now.isoformat()}",
        "--dimensions",
        *dimensions,
        *options,
    )
    newest = max(statistics["Datapoints"], key=itemgetter("Timestamp"), default={"Maximum": 0})
    return int(newest["Maximum"])


def price_lines(platform: EksConfig) -> Iterator[Line]:
    """Yield the price lines of the platform."""
    region, system = platform.region, platform.system_pool
    gateways = len(platform.all_zones) if platform.network.nat_per_zone else 1
    yield price_line("cluster", CLOUD, region, "EKS control plane", 1)
    yield price_line("cluster", CLOUD, region, "NAT gateway", gateways)
    yield price_line("cluster", CLOUD, region, "public IPv4 address", gateways)
    endpoints = len(INTERFACE_ENDPOINTS) * len(platform.all_zones)
    yield price_line("cluster", CLOUD, region, "interface endpoint in a zone", endpoints)
    yield price_line("system", CLOUD, region, system.machine_type, system.nodes)
    yield price_line("system", CLOUD, region, "disk gp3 GB", SYSTEM_DISK_GB * system.nodes)
    for plan in node_groups(platform):
        spot = plan.model.is_spot
        machine = f"{plan.machine.name}{' in a capacity block' if plan.model.is_capacity_block else ''}"
        yield price_line(plan.name, CLOUD, region, machine, plan.nodes, spot=spot)
        disk = f"disk {plan.pool.disk_type} GB"
        yield price_line(plan.name, CLOUD, region, disk, plan.pool.disk_size_gb * plan.nodes, spot=spot)
        if plan.pool.disk_type == "io2":
            yield price_line(plan.name, CLOUD, region, "disk io2 IOPS", DISK_IOPS * plan.nodes, spot=spot)
