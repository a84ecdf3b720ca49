"""Validation of EKS platform settings: alone, against the deployed cluster and against the AWS account."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Network
from subprocess import CalledProcessError
from typing import Any

from infra.aws.config import EksConfig, EksPoolConfig
from infra.aws.inventory import CLUSTER_TYPE, LOG_GROUP_TYPE, cluster_log_group
from infra.aws.pools import NodeGroupPlan, group_plan, node_groups
from infra.cloud import (
    documentation_ranges,
    open_to_internet_problems,
    platform_problem,
    pool_name_problems,
    pool_problem,
)
from infra.hardware.ec2 import AWS_ZONES, AWS_ZONES_BY_ACCOUNT, EC2_FAMILIES, EC2_MACHINES, ec2_machine
from infra.hardware.node_capacity import reserved_addresses
from infra.hardware.versions import eks_version_error, minor_of
from infra.inventory import RunCommand
from infra.make_command import make_command
from settings.problem import Path, Problem
from settings.problems import SKIP_CHECK_HINT
from settings.text import counted


def problems(config: EksConfig) -> list[Problem]:
    """Return the problems of the settings of an EKS platform."""
    if config.region not in AWS_ZONES:
        message = f"is not a region that Trainyard knows; write one of {', '.join(sorted(AWS_ZONES))}"
        return [Problem("eks.region.unknown", ("platform", "region"), message, config.region)]
    all_problems = [*_ranges(config), *_version(config), *_zones_of_platform(config), *_system_pool(config)]
    all_problems += [*_bucket(config), *_admins(config)]
    all_problems += pool_name_problems("eks.pool.name_taken", [pool.name for pool in config.pools])
    for index, pool in enumerate(config.pools):
        path: Path = ("platform", "pools", index)
        try:
            plan = group_plan(config, pool)
        except ValueError as error:
            problem = pool_problem("eks.pool.machine_unknown", pool, "machine_type", str(error))
            all_problems.append(problem.below(*path))
            continue
        for rule in (_region, _zones, _fabric, _placement, _capacity):
            all_problems += [problem.below(*path) for problem in rule(config, pool, plan)]
    return all_problems


SERVICE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
"""Ranges that EKS accepts for Services.

https://docs.aws.amazon.com/eks/latest/APIReference/API_KubernetesNetworkConfigRequest.html

hashicorp/terraform-provider-aws also accepts 100.64.0.0/10 in versions after 6.34.0. EKS does not document that.
"""
VPC_RANGES = (*SERVICE_RANGES, IPv4Network("100.64.0.0/10"))
"""Ranges that Trainyard accepts for a VPC.

EKS accepts every range that a VPC can have. With a public range, pods could not reach internet hosts whose addresses
are in that range.
https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html
"""
BUCKET_NAME_LIMIT = 63
DEFAULT_BUCKET_SUFFIX = "-bucket-0123abc"
"""Example suffix of a default bucket name, after the cluster's name. Pulumi generates the last 7 characters."""


def _version(config: EksConfig) -> Iterator[Problem]:
    today = datetime.now(tz=UTC).date()
    if config.check_availability and (error := eks_version_error(config.kubernetes_version, today)):
        code, message = error
        key = "kubernetes_version"
        yield platform_problem(f"eks.kubernetes_version.{code}", config, key, message + SKIP_CHECK_HINT)


def _bucket(config: EksConfig) -> Iterator[Problem]:
    """Check the bucket's name: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""
    name = config.bucket.name or ""
    if name.startswith(("xn--", "sthree-", "amzn-s3-demo-")) or name.endswith(("-s3alias", "--ol-s3", "--x-s3")):
        message = "has a prefix or suffix that S3 reserves; write another name"
        yield Problem("eks.bucket.name_reserved", ("platform", "bucket", "name"), message, name)
    if not name and len(config.name) > (limit := BUCKET_NAME_LIMIT - len(DEFAULT_BUCKET_SUFFIX)):
        message = (
            f"is too long for the default bucket name NAME{DEFAULT_BUCKET_SUFFIX}; write at most {limit} characters, "
            "or set `bucket.name`"
        )
        yield Problem("eks.name.too_long_for_bucket", ("platform", "name"), message, config.name)


def _admins(config: EksConfig) -> Iterator[Problem]:
    for index, principal in enumerate(config.admins):
        if principal in config.admins[:index]:
            message = "is in the list twice; remove one"
            yield Problem("eks.admins.duplicate", ("platform", "admins", index), message, principal)


def _ranges(config: EksConfig) -> Iterator[Problem]:
    """Check address ranges: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""
    vpc, services = IPv4Network(config.network.vpc), IPv4Network(config.network.services)
    path: Path = ("platform", "network")
    if 16 <= vpc.prefixlen <= 18:
        yield from _too_small_vpc(config, vpc)
    else:
        yield Problem("eks.network.vpc_size", (*path, "vpc"), "must be a /16, /17 or /18; change the prefix", str(vpc))
    if not 12 <= services.prefixlen <= 24:
        yield Problem(
            "eks.network.services_size", (*path, "services"), "must be a /12 to /24; change the prefix", str(services)
        )
    for key, network, ranges in (("vpc", vpc, VPC_RANGES), ("services", services, SERVICE_RANGES)):
        if not any(network.subnet_of(range_) for range_ in ranges):
            message = f"is not a private range; write a range in {', '.join(map(str, ranges))}"
            yield Problem("eks.network.public", (*path, key), message, str(network))
    if vpc.overlaps(services):
        message = f"overlaps network.vpc, {vpc}; write ranges that do not overlap"
        yield Problem("eks.network.overlap", (*path, "services"), message, str(services))
    yield from open_to_internet_problems(config.authorized_networks)
    for index, network in enumerate(map(IPv4Network, config.authorized_networks)):
        if network.is_private and not documentation_ranges([str(network)]):
            remedy = "write your network's public range, or remove this range"
            message = f"is private; the public endpoint accepts only public ranges; {remedy}"
            path = ("platform", "authorized_networks", index)
            yield Problem("eks.authorized_networks.private", path, message, str(network))


def _too_small_vpc(config: EksConfig, vpc: IPv4Network) -> Iterator[Problem]:
    """Yield a problem if the nodes of a zone need more addresses than the zone's subnet has.

    Each zone's subnet is a quarter of the VPC. AWS reserves five addresses of each subnet:
    https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html
    """
    available = vpc.num_addresses // 4 - 5
    try:
        pools = [(plan.machine, plan.nodes, plan.zones) for plan in node_groups(config)]
        system = ec2_machine(config.system_pool.machine_type)
    except ValueError:
        return
    pools.append((system, config.system_pool.nodes, config.all_zones))
    for zone in config.all_zones:
        counts = [(machine, -(-nodes // len(zones))) for machine, nodes, zones in pools if zone in zones]
        needed = sum(count * reserved_addresses(machine) for machine, count in counts)
        if needed > available:
            num_nodes = sum(count for _, count in counts)
            message = (
                f"has {available} addresses in each zone, but the {num_nodes} nodes in {zone} need {needed}, for two "
                "network interfaces each; write a larger range or fewer nodes"
            )
            yield Problem("eks.network.too_few_addresses", ("platform", "network", "vpc"), message, str(vpc))
            return


def _zones_of_platform(config: EksConfig) -> Iterator[Problem]:
    zones = config.all_zones
    if len(set(zones)) != len(zones) or len(zones) not in (2, 3):
        message = "must be two or three different zones; add or remove zones"
        yield Problem("eks.zones.count", ("platform", "zones"), message, list(zones))
    region_zones = AWS_ZONES[config.region]
    for zone in zones:
        if zone[:-1] != config.region:
            message = f"{zone} is not in platform.region, {config.region}; write zones of that region"
            yield Problem("eks.zones.other_region", ("platform", "zones"), message, list(zones))
        elif config.check_availability and zone not in region_zones:
            message = f"{config.region} does not have zone {zone}; write some of {', '.join(sorted(region_zones))}"
            yield Problem("eks.zones.unknown", ("platform", "zones"), message + SKIP_CHECK_HINT, list(zones))
    if config.check_availability and not config.zones and config.region in AWS_ZONES_BY_ACCOUNT:
        message = (
            f"{config.region} gives each account only some of its zones; write two that your account has, from "
            f"{', '.join(region_zones)}"
        )
        yield Problem("eks.zones.by_account", ("platform", "zones"), message, [])


def _system_pool(config: EksConfig) -> Iterator[Problem]:
    path: Path = ("platform", "system_pool", "machine_type")
    name = config.system_pool.machine_type
    try:
        machine = ec2_machine(name)
    except ValueError as error:
        yield Problem("eks.system_pool.machine_unknown", path, str(error), name)
        return
    if machine.gpus:
        yield Problem("eks.system_pool.has_gpus", path, "has GPUs; write a CPU instance type such as m7i.large", name)


def _region(config: EksConfig, _pool: EksPoolConfig, plan: NodeGroupPlan) -> Iterator[Problem]:
    regions = EC2_FAMILIES[plan.machine.family].regions
    if config.check_availability and regions is not None and config.region not in regions:
        family = plan.machine.family
        message = f"{config.region} does not offer {family}; only {', '.join(sorted(regions))} do; write another type"
        yield Problem("eks.pool.machine_not_in_region", ("machine_type",), message + SKIP_CHECK_HINT, plan.machine.name)


def _zones(config: EksConfig, pool: EksPoolConfig, plan: NodeGroupPlan) -> Iterator[Problem]:
    outside = [zone for zone in plan.zones if zone not in config.all_zones]
    if outside:
        message = f"{outside[0]} is not a zone of the platform; write some of {', '.join(config.all_zones)}"
        yield pool_problem("eks.pool.zones_outside_platform", pool, "zones", message)
    if len(set(plan.zones)) != len(plan.zones):
        yield pool_problem("eks.pool.zones_duplicate", pool, "zones", "has a zone twice; remove one")


MIN_EFA_MINOR = 33
"""Oldest minor version whose cluster security group has an egress rule to itself, which allows outgoing EFA traffic.

A rule for 0.0.0.0/0 does not match EFA traffic. Sources: eksctl-io/eksctl pull request 8509 and
https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html.
"""


def _fabric(config: EksConfig, pool: EksPoolConfig, plan: NodeGroupPlan) -> Iterator[Problem]:
    """Check EFA: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"""
    # With check_availability, `_version` rejects older versions.
    if plan.efa and not config.check_availability and minor_of(config.kubernetes_version) < MIN_EFA_MINOR:
        message = (
            f"requires Kubernetes 1.{MIN_EFA_MINOR} or newer, because security groups of older clusters block outgoing "
            f"EFA traffic; write `kubernetes_version: '1.{MIN_EFA_MINOR}'` or newer, or `efa: false` for this pool"
        )
        yield Problem("eks.pool.efa_version", ("efa",), message, True)
    if pool.efa and not plan.machine.efa_interfaces:
        family = plan.machine.family
        with_efa = [
            machine.name for machine in EC2_MACHINES.values() if machine.efa_interfaces and machine.family == family
        ]
        suggestions = ", ".join(with_efa) or "p4d.24xlarge, p5.48xlarge"
        message = (
            f"{plan.machine.name} does not support EFA; remove `efa`, or write a type with EFA such as {suggestions}"
        )
        yield pool_problem("eks.pool.efa_machine", pool, "efa", message)
    if plan.efa and len(plan.zones) > 1:
        yield pool_problem("eks.pool.efa_zones", pool, "zones", "EFA works only within one zone; write one zone")


def _placement(_config: EksConfig, pool: EksPoolConfig, plan: NodeGroupPlan) -> Iterator[Problem]:
    """Check placement groups: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html"""
    if not pool.placement_group:
        return
    if plan.model.is_capacity_block:
        message = "a capacity block determines the placement of its nodes; remove `placement_group`"
        yield pool_problem("eks.pool.placement_capacity_block", pool, "placement_group", message)
    elif plan.model.reservation:
        message = (
            "a reservation has no capacity in a new placement group, which the stack would create; remove "
            "`placement_group`, and create the reservation in an existing group if its nodes must be close together"
        )
        yield pool_problem("eks.pool.placement_reservation", pool, "placement_group", message)
    elif len(plan.zones) > 1:
        message = "a cluster placement group is in one zone; write one zone"
        yield pool_problem("eks.pool.placement_zones", pool, "zones", message)


def _capacity(_config: EksConfig, pool: EksPoolConfig, plan: NodeGroupPlan) -> Iterator[Problem]:
    """Check capacity blocks and reservations.

    https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html
    """
    if plan.model.is_capacity_block and not EC2_FAMILIES[plan.machine.family].capacity_blocks:
        families = [family for family in EC2_FAMILIES.values() if family.capacity_blocks]
        supported = ", ".join(machine.name for family in families for machine in family.machines)
        message = f"{plan.machine.name} does not support capacity blocks; only {supported} do; write another type"
        yield pool_problem("eks.pool.capacity_block_machine", pool, "capacity", message)
    if plan.model.reservation and len(plan.zones) > 1:
        yield pool_problem("eks.pool.reservation_zones", pool, "zones", "a reservation is in one zone; write that zone")
    if plan.model.reservation and not pool.zones:
        message = "is missing; write the zone of the reservation"
        yield pool_problem("eks.pool.reservation_without_zone", pool, "zones", message)


def _recreate_hint() -> str:
    """Return the end of a message: how to recreate the cluster with the new value."""
    down, up = make_command("down"), make_command("up")
    return f"or recreate the cluster with {down} and {up}; the bucket stays unless `bucket.keep` is false"


LAUNCH_TEMPLATE_TYPE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_GROUP_TYPE = "aws:eks/nodeGroup:NodeGroup"
VPC_TYPE = "aws:ec2/vpc:Vpc"
SUBNET_TYPE = "aws:ec2/subnet:Subnet"
PRIVATE_SUBNET_PREFIX = "network-private-"
"""Prefix of the Pulumi names of the private subnets, which contain the nodes."""


@dataclass(frozen=True, kw_only=True)
class DeployedCluster:
    """Version of a deployed cluster, and its settings that cannot change."""

    region: str
    vpc: str
    """Range of the VPC."""
    zones: tuple[str, ...]
    """Zones of the subnets, in the order of their ranges."""
    version: str
    """Minor version of the control plane."""


def deployed_cluster(config: EksConfig) -> DeployedCluster:
    """Return the cluster that a deployment of these settings creates."""
    return DeployedCluster(
        region=config.region, vpc=config.network.vpc, zones=config.all_zones, version=config.kubernetes_version
    )


def cluster_in(deployment: Mapping[str, Any]) -> DeployedCluster | None:
    """Return the cluster in a deployment of `pulumi stack export`, or None."""
    resources = _existing(deployment)
    clusters = [resource["outputs"] for resource in resources if resource["type"] == CLUSTER_TYPE]
    vpcs = [resource["outputs"] for resource in resources if resource["type"] == VPC_TYPE]
    if not clusters or not vpcs:
        return None
    subnets = [
        (IPv4Network(resource["outputs"]["cidrBlock"]), str(resource["outputs"]["availabilityZone"]))
        for resource in resources
        if resource["type"] == SUBNET_TYPE and resource["urn"].rpartition("::")[2].startswith(PRIVATE_SUBNET_PREFIX)
    ]
    zones = tuple(zone for _range, zone in sorted(subnets))
    return DeployedCluster(
        region=zones[0][:-1] if zones else "",
        vpc=str(vpcs[0]["cidrBlock"]),
        zones=zones,
        version=str(clusters[0]["version"]),
    )


def network_problems(deployment: Mapping[str, Any], config: EksConfig) -> Iterator[Problem]:
    """Yield a problem for each range or zone that differs from the network in a deployment without a cluster.

    Pulumi creates the new subnets before it deletes the old ones, and AWS rejects ranges in use. After a failed
    update, the deployment may lack some subnets.
    """
    remedy = f"or remove the network with {make_command('down')}"
    ranges = map(str, IPv4Network(config.network.vpc).subnets(prefixlen_diff=2))
    zones = dict(zip(ranges, config.all_zones, strict=False))
    for resource in _existing(deployment):
        outputs = resource["outputs"]
        if resource["type"] == VPC_TYPE and outputs["cidrBlock"] != config.network.vpc:
            message = f"cannot change while the network exists; write its range, {outputs['cidrBlock']}, {remedy}"
            yield Problem("eks.network.vpc_in_use", ("platform", "network", "vpc"), message, config.network.vpc)
        elif resource["type"] == SUBNET_TYPE:
            zone, name = str(outputs["availabilityZone"]), resource["urn"].rpartition("::")[2]
            planned = zones.get(str(outputs["cidrBlock"]), zone)
            is_private = name.startswith(PRIVATE_SUBNET_PREFIX)
            if is_private and planned != zone and zone[:-1] == config.region:
                message = f"cannot change while the network exists; write {zone} instead of {planned}, {remedy}"
                yield Problem("eks.zones.in_use", ("platform", "zones"), message, list(config.all_zones))


def _existing(deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the resources of a deployment, without components and without resources that Pulumi will delete."""
    resources = deployment.get("resources") or []
    return [resource for resource in resources if resource.get("id") and not resource.get("delete")]


def clusters_with_other_version(deployment: Mapping[str, Any], config: EksConfig) -> list[str]:
    """Return the URN of the cluster if the state and the settings have different versions.

    The state may have an old version, because EKS itself upgrades a cluster when standard support of its version
    ends: https://docs.aws.amazon.com/eks/latest/userguide/disable-extended-support.html
    """
    clusters = [resource for resource in _existing(deployment) if resource["type"] == CLUSTER_TYPE]
    return [str(each["urn"]) for each in clusters if each["outputs"].get("version") != config.kubernetes_version]


def doubtful_node_groups(deployment: Mapping[str, Any]) -> list[str]:
    """Return the URNs of node groups that are not known to be active.

    The provider reads the status after a successful creation: hashicorp/terraform-provider-aws
    internal/service/eks/node_group.go, resourceNodeGroupCreate. If an update ends earlier, a refresh may read
    CREATING, although EKS later fails to create the group.
    """
    groups = [resource for resource in _existing(deployment) if resource["type"] == NODE_GROUP_TYPE]
    return [str(each["urn"]) for each in groups if each.get("initErrors") or each["outputs"].get("status") != "ACTIVE"]


def failed_node_groups(deployment: Mapping[str, Any]) -> list[str]:
    """Return the URNs of node groups that EKS could not create, for example without capacity.

    Such a group stays failed, and EKS rejects its updates. Pulumi's next update would only read it and succeed:
    https://github.com/aws/containers-roadmap/issues/764, https://github.com/aws/containers-roadmap/issues/2204
    """
    groups = [resource for resource in _existing(deployment) if resource["type"] == NODE_GROUP_TYPE]
    return [str(each["urn"]) for each in groups if _has_failed(each)]


def _has_failed(group: Mapping[str, Any]) -> bool:
    return bool(group["outputs"].get("status") == "CREATE_FAILED")


def update_problems(cluster: DeployedCluster, config: EksConfig) -> list[Problem]:
    """Return a problem for each setting that AWS would reject for a deployed cluster.

    A new region replaces the cluster, so all settings can change with it. In the same region, a cluster keeps its VPC
    and the zones of its subnets:
    https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html#network-requirements-subnets
    """
    if cluster.region != config.region:
        return []
    changes = []
    if cluster.vpc != config.network.vpc:
        message = f"cannot change while the cluster exists; write its range, {cluster.vpc}, {_recreate_hint()}"
        changes.append(Problem("eks.network.vpc_fixed", ("platform", "network", "vpc"), message, config.network.vpc))
    if cluster.zones != config.all_zones:
        zones = f"[{', '.join(cluster.zones)}]"
        message = f"cannot change while the cluster exists; write its zones in this order, {zones}, {_recreate_hint()}"
        changes.append(Problem("eks.zones.fixed", ("platform", "zones"), message, list(config.all_zones)))
    return [*changes, *_version_step(cluster.version, config.kubernetes_version)]


def _version_step(current: str, requested: str) -> Iterator[Problem]:
    """Yield a problem for a version downgrade, or a step of more than one minor version.

    https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html, UpdateClusterVersion
    """
    path: Path = ("platform", "kubernetes_version")
    steps = minor_of(requested) - minor_of(current)
    if steps > 1:
        next_version = f"1.{minor_of(current) + 1}"
        message = (
            f"is {steps} minor versions above the cluster's, {current}; EKS upgrades one at a time; write "
            f"'{next_version}', run {make_command('up')} until it succeeds, and then write the next version"
        )
        yield Problem("eks.kubernetes_version.skipped", path, message, requested)
    elif steps < 0:
        message = (
            f"is below the cluster's version, {current}, and EKS cannot downgrade a cluster; write '{current}' or the "
            "next minor version (EKS itself upgrades a cluster when standard support of its version ends)"
        )
        yield Problem("eks.kubernetes_version.downgrade", path, message, requested)


SYSTEM_POOL = "system"
"""Name of the node group of the system pool."""
FUTURE_RESERVATION_STATES = ("assessing", "delayed", "payment-pending", "pending", "scheduled")
"""States before `active`: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CapacityReservation.html"""
ZONES_WITHOUT_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
"""Ids of the zones where EKS creates no cluster. Each account maps letters to ids differently.

Source: eksctl 99984adb6, pkg/az/az.go, zoneIDsToAvoid
"""

Check = Callable[[EksConfig, Mapping[str, Any], RunCommand], Iterator[Problem]]


def account_problems(config: EksConfig, deployment: Mapping[str, Any], run_json: RunCommand) -> Iterator[Problem]:
    """Yield a problem for each setting that the account rejects for new resources.

    `deployment` is the state of a `pulumi stack export`. Skip a check whose query fails, for example without a
    permission: the update reports the same error later.
    """
    checks: tuple[Check, ...] = (_log_group_in_account, _zones_in_account, _types_in_zones, _reservations_in_account)
    for check in checks:
        with suppress(CalledProcessError):
            yield from check(config, deployment, run_json)


def _log_group_in_account(
    platform: EksConfig, deployment: Mapping[str, Any], run_json: RunCommand
) -> Iterator[Problem]:
    """Yield a problem if the cluster's log group exists and is not in a deployment of `pulumi stack export`.

    AWS would reject the new group in the middle of the update. The existing group has no tags that show its owner.
    """
    group, options = cluster_log_group(platform.name), (f"--region={platform.region}", "--output=json")
    resources = deployment.get("resources") or []
    if any(each["type"] == LOG_GROUP_TYPE and each.get("id") == group for each in resources):
        return
    found = run_json("aws", "logs", "describe-log-groups", f"--log-group-name-prefix={group}", *options)
    if group not in [each["logGroupName"] for each in found["logGroups"]]:
        return
    remedy = "write another name"
    if platform.name not in run_json("aws", "eks", "list-clusters", *options)["clusters"]:
        delete = f"aws logs delete-log-group --log-group-name {group} --region {platform.region}"
        remedy = f"delete it with `{delete}` if you do not need the logs of a deleted cluster of this name, or {remedy}"
    message = f"the log group {group} exists and does not belong to this stack; {remedy}"
    yield Problem("eks.name.log_group_exists", ("platform", "name"), message, platform.name)


def _zones_in_account(config: EksConfig, deployment: Mapping[str, Any], run_json: RunCommand) -> Iterator[Problem]:
    """Yield a problem for each zone that the account lacks, or where EKS creates no cluster."""
    deployed = cluster_in(deployment)
    if deployed and deployed.region == config.region:
        return
    found = _query(config, run_json, "describe-availability-zones")["AvailabilityZones"]
    ids = {each["ZoneName"]: each["ZoneId"] for each in found if each.get("ZoneType") == "availability-zone"}
    usable = ", ".join(sorted(name for name, id_ in ids.items() if id_ not in ZONES_WITHOUT_EKS))
    for zone in config.all_zones:
        if ids.get(zone) in ZONES_WITHOUT_EKS:
            message = f"EKS creates no cluster in {zone}, which is {ids[zone]} in this account"
        elif zone not in ids:
            message = f"this account does not have {zone}"
        else:
            continue
        yield Problem(
            "eks.zones.not_in_account",
            ("platform", "zones"),
            f"{message}; write two or three of {usable}",
            config.zones,
        )


def _types_in_zones(config: EksConfig, deployment: Mapping[str, Any], run_json: RunCommand) -> Iterator[Problem]:
    """Yield a problem for each new pool with a zone that does not offer its instance type."""
    system = (SYSTEM_POOL, config.system_pool.machine_type, config.all_zones)
    wanted: list[tuple[Path, tuple[str, str, tuple[str, ...]]]] = [(("system_pool",), system)]
    wanted += [
        (("pools", index), (plan.name, plan.machine.name, plan.zones))
        for index, plan in enumerate(node_groups(config))
        if plan.model.reservation is None
    ]
    deployed = _deployed_groups(deployment, config)
    # A group with a capacity block has its instance type in the launch template.
    new = [
        (path, machine, zones)
        for path, (name, machine, zones) in wanted
        if name not in deployed or machine not in (deployed[name].get("instanceTypes") or [machine])
    ]
    if not new:
        return
    types = ",".join(sorted({machine for _, machine, _ in new}))
    options = ("--location-type=availability-zone", f"--filters=Name=instance-type,Values={types}")
    found = _query(config, run_json, "describe-instance-type-offerings", *options)["InstanceTypeOfferings"]
    offerings = {(each["InstanceType"], each["Location"]) for each in found}
    for path, machine, zones in new:
        offered_zones = sorted(zone for each, zone in offerings if each == machine)
        if missing := [zone for zone in zones if zone not in offered_zones]:
            message = f"AWS does not offer it in {config.region}; write another type"
            if offered_zones:
                message = (
                    f"AWS does not offer it in {missing[0]}, only in {', '.join(offered_zones)}; write these as "
                    "`zones`, or another type"
                )
            yield Problem("eks.pool.machine_not_in_zone", ("platform", *path, "machine_type"), message, machine)


def _reservations_in_account(
    config: EksConfig, deployment: Mapping[str, Any], run_json: RunCommand
) -> Iterator[Problem]:
    """Yield a problem for each new pool whose reservation or capacity block cannot start its nodes."""
    deployed, templates = _deployed_groups(deployment, config), _existing(deployment)
    used = {
        (each.get("capacityReservationTarget") or {}).get("capacityReservationId")
        for template in templates
        if template["type"] == LAUNCH_TEMPLATE_TYPE
        and (each := template["outputs"].get("capacityReservationSpecification"))
    }
    plans = [
        (index, plan)
        for index, plan in enumerate(node_groups(config))
        if plan.model.reservation and not (plan.name in deployed and plan.model.reservation in used)
    ]
    if not plans:
        return
    found = _query(config, run_json, "describe-capacity-reservations")["CapacityReservations"]
    reservations = {each["CapacityReservationId"]: each for each in found}
    for index, plan in plans:
        message = _reservation_message(plan, reservations.get(plan.model.reservation))
        if message:
            path = ("platform", "pools", index, "capacity")
            yield Problem("eks.pool.reservation_unusable", path, message, plan.pool.capacity)


def _reservation_message(plan: NodeGroupPlan, found: Mapping[str, Any] | None) -> str:
    """Return why a pool cannot use a reservation, with the remedy; empty if it can."""
    if found is None:
        return "this account does not have it in this region; write another id, or another region"
    state, machine, zone = found["State"], found["InstanceType"], found["AvailabilityZone"]
    count = found["TotalInstanceCount"]
    if state in FUTURE_RESERVATION_STATES:
        start = found.get("StartDate", "unknown")
        return f"is {state} and starts no instances yet; run `make up` after its start ({start})"
    if state != "active":
        return f"is {state} and starts no instances; write another id"
    is_block = found.get("ReservationType") == "capacity-block"
    if is_block != plan.model.is_capacity_block:
        kind = "capacity-block" if is_block else "reservation"
        return f"has another kind in this account; write `{kind}:{plan.model.reservation}`"
    if machine != plan.machine.name:
        return f"is for {machine}; write `machine_type: {machine}`"
    if plan.zones != (zone,):
        return f"is in {zone}; write `zones: [{zone}]`, and {zone} in `platform.zones`"
    if count < plan.nodes:
        return f"has {counted(count, 'instance')}, but the pool has {plan.nodes} nodes; write `nodes: {count}`"
    return ""


def _query(config: EksConfig, run_json: RunCommand, command: str, *options: str) -> Any:
    """Return the output of a command of `aws ec2` in the platform's region."""
    return run_json("aws", "ec2", command, *options, f"--region={config.region}", "--output=json")


def _deployed_groups(deployment: Mapping[str, Any], config: EksConfig) -> dict[str, Mapping[str, Any]]:
    """Return pool -> outputs of its node group, without failed groups and without a cluster in another region."""
    cluster = cluster_in(deployment)
    if cluster is None or cluster.region != config.region:
        return {}
    groups = [each for each in _existing(deployment) if each["type"] == NODE_GROUP_TYPE and not _has_failed(each)]
    return {str(each["outputs"]["nodeGroupName"]): each["outputs"] for each in groups}
