"""Validation of GKE platform settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

from infra.cloud import open_to_internet_problems, platform_problem, pool_name_problems, pool_problem
from infra.gcp.config import POOL_NAME_LIMIT, GkeConfig, GkePoolConfig
from infra.gcp.pools import (
    PODS_PER_NODE,
    NodePoolPlan,
    default_pool_machine,
    fabric_of,
    hardware_of,
    num_nodes,
    pool_plans,
    system_machine,
)
from infra.hardware.gce import GCE_FAMILIES, gce_machine
from infra.hardware.gpus import (
    GCP_REGIONS,
    GCP_ZONES,
    GPU_ZONES,
    MISSING_MACHINE_FAMILIES,
    TPU_FLEX_START_ZONES,
    TPU_ZONES,
)
from infra.hardware.machines import HardwareError
from infra.hardware.tpus import GENERATIONS
from infra.hardware.versions import gke_version_error, minor_of
from settings.problem import Path, Problem
from settings.problems import SKIP_CHECK_HINT
from settings.text import counted


def repository_problems(deployment: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for an image repository that the next update would delete although other stacks may use it.

    Earlier versions of Trainyard managed any repository, even `gcr.io` of the whole project.
    """
    resources = [each for each in deployment.get("resources") or [] if each.get("id") and not each.get("delete")]
    names = {str(each["outputs"].get("name")) for each in resources if each["type"] == "gcp:container/cluster:Cluster"}
    for each in resources:
        if each["type"] != "gcp:artifactregistry/repository:Repository" or each.get("retainOnDelete"):
            continue
        name = str(each["outputs"].get("repositoryId"))
        if name not in names:
            message = (
                "the update would delete this image repository, which jobs or other stacks may use; set its "
                "`retainOnDelete` as docs/upgrading.md says, and delete it yourself once no job or stack uses it"
            )
            yield Problem("gke.registry.would_be_deleted", ("platform", "registry"), message, name)


def problems(config: GkeConfig) -> list[Problem]:
    """Return the problems of the settings of a GKE platform."""
    if problem := _unknown_zone(config):
        return [problem]
    all_problems = [
        *_range_problems(config),
        *_availability_problems(config),
        *_storage(config),
        *_system_pool_problems(config),
        *_maintenance(config),
        *pool_name_problems("gke.pool.name_taken", [pool.name for pool in config.pools]),
    ]
    fabrics: dict[tuple[str, str], int] = {}
    for index, pool in enumerate(config.pools):
        path: Path = ("platform", "pools", index)
        if not pool.models:
            message = "is empty; write for example on-demand"
            all_problems.append(pool_problem("gke.pool.capacity_empty", pool, "capacity", message).below(*path))
            continue
        try:
            plans = pool_plans(config, pool)
        except HardwareError as error:
            all_problems.append(pool_problem(f"gke.pool.{error.code}", pool, error.key, str(error)).below(*path))
            continue
        fabrics.update({(plan.machine.name, zone): index for plan in plans if fabric_of(plan) for zone in plan.zones})
        for rule in (_tpu, _gpu, _zones, _size, _capacity, _placement, _disk, _names):
            all_problems += [problem.below(*path) for problem in rule(config, pool, plans)]
    return [*all_problems, *_several_fabrics(fabrics)]


def _several_fabrics(fabrics: Mapping[tuple[str, str], int]) -> Iterator[Problem]:
    """Yield a problem if the pools need several sets of additional networks.

    `fabrics` maps machine type and zone of each set to the index of a pool.
    """
    if len(fabrics) <= 1:
        return
    (machine, zone), index = list(fabrics.items())[-1]
    reason = f"{machine} in {zone} needs a separate set of networks, but a cluster can have only one"
    value: object
    if len({name for name, _ in fabrics}) == 1:
        key, value = "zones", sorted({zone for _, zone in fabrics})
        message = f"{reason}; write one zone for all pools of this type"
    else:
        key, value = "machine_type", machine
        message = f"{reason}; write the same type for all pools of A3 and A4"
    yield Problem("gke.pool.several_network_sets", ("platform", "pools", index, key), message, value)


def _storage(config: GkeConfig) -> Iterator[Problem]:
    """Check the bucket, the registry and the encryption key.

    https://cloud.google.com/storage/docs/buckets#naming and
    https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets
    """
    name, key = config.bucket.name, config.secrets_key
    if "repository" in config.registry.model_fields_set and config.uses_gcr:
        message = f"{config.registry.host} has a fixed repository; remove `repository`, or write a host on pkg.dev"
        yield platform_problem("gke.registry.gcr_repository_fixed", config, "registry.repository", message)
    if "keep_images" in config.registry.model_fields_set and not config.owns_repository:
        message = "has no effect, because the stack did not create this repository; remove `keep_images`"
        yield platform_problem("gke.registry.keep_images_of_others", config, "registry.keep_images", message)
    prefix = name or config.name
    if prefix.startswith("goog") or "google" in prefix or "g00gle" in prefix:
        keys = ("bucket", "name") if name else ("name",)
        reason = "" if name else "the bucket's default name starts with the cluster's name; "
        message = f"starts with `goog` or contains `google`, which Cloud Storage reserves; {reason}write another name"
        yield Problem("gke.bucket.name_reserved", ("platform", *keys), message, prefix)
    if key and key.split("/")[3] != config.region:
        message = f"is in {key.split('/')[3]}; the key must be in the cluster's region; write one in {config.region}"
        yield Problem("gke.secrets_key.other_region", ("platform", "secrets_key"), message, key)


def _maintenance(config: GkeConfig) -> Iterator[Problem]:
    """Check maintenance windows:
    https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions"""
    hours = len(set(config.maintenance.days)) * config.maintenance.hours * 4
    if hours < 48:
        message = f"has {hours} hours in four weeks; GKE requires 48 in 32 days; write more days, or more `hours`"
        yield platform_problem("gke.maintenance.too_short", config, "maintenance.days", message)


def _tpu(_config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    """Check the TPU settings of a pool: https://cloud.google.com/kubernetes-engine/docs/concepts/tpus"""
    keys, tpu = pool.model_fields_set, pool.tpu
    if tpu is None:
        if pool.topology is not None:
            message = "is allowed only for TPUs; remove `topology`, or write a TPU as accelerator"
            yield pool_problem("gke.pool.topology_without_tpu", pool, "topology", message)
        if pool.slices != 1:
            message = "is allowed only for TPUs; write `nodes` instead"
            yield pool_problem("gke.pool.slices_without_tpu", pool, "slices", message)
        if plans[0].machine.tpu_chips:
            family = plans[0].machine.family
            remedy = f"write `accelerator: {GENERATIONS[family].type_prefix}-...` instead, or {family} with `topology`"
            message = f"is a machine type of TPU {family}; {remedy}"
            yield pool_problem("gke.pool.tpu_machine_without_accelerator", pool, "machine_type", message)
        return
    if "nodes" in keys and pool.nodes != (total := tpu.hosts * pool.slices):
        message = f"{pool.slices} x {tpu.accelerator_type} has {total} hosts; write {total}, or remove `nodes`"
        yield pool_problem("gke.pool.nodes_differ_from_slice", pool, "nodes", message)
    if "machine_type" in keys and pool.machine_type != tpu.machine_type:
        message = f"{tpu.accelerator_type} uses {tpu.machine_type}; write that, or remove `machine_type`"
        yield pool_problem("gke.pool.machine_differs_from_slice", pool, "machine_type", message)
    if "accelerators_per_node" in keys and pool.accelerators_per_node != tpu.chips_per_host:
        message = f"each host of {tpu.accelerator_type} has {tpu.chips_per_host} chips; remove `accelerators_per_node`"
        yield pool_problem("gke.pool.chips_differ_from_slice", pool, "accelerators_per_node", message)
    if tpu.hosts > 1 and pool.min_nodes not in (None, 0, tpu.hosts):
        message = f"GKE creates all nodes of a slice or none; write 0, or {tpu.hosts} for permanent nodes"
        yield pool_problem("gke.pool.min_nodes_splits_slice", pool, "min_nodes", message)


def _gpu(_config: GkeConfig, pool: GkePoolConfig, _plans: list[NodePoolPlan]) -> Iterator[Problem]:
    _machine, gpu, _number = hardware_of(pool)
    if gpu is None and "gpu_driver" in pool.model_fields_set:
        message = "this pool has no GPU; remove `gpu_driver`"
        yield pool_problem("gke.pool.driver_without_gpu", pool, "gpu_driver", message)
    if gpu is None and pool.tpu is None and "accelerators_per_node" in pool.model_fields_set:
        message = "this pool has no accelerator; add one, or remove `accelerators_per_node`"
        yield pool_problem("gke.pool.count_without_accelerator", pool, "accelerators_per_node", message)


def _zones(config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    """Check that zones are in the cluster's region and have the accelerator; infra/hardware/gpus.py has the sources."""
    plan = plans[0]
    zones = pool.zones or (config.zone,)
    if len(set(zones)) != len(zones):
        yield Problem("gke.pool.zones_duplicate", ("zones",), "has a zone twice; remove one", list(zones))
    outside = [zone for zone in zones if zone.rpartition("-")[0] != config.region]
    if outside:
        message = f"{outside[0]} is not in {config.region}, the region of platform.zone; write zones in that region"
        yield Problem("gke.pool.zones_other_region", ("zones",), message, list(zones))
    allowed = TPU_ZONES[plan.tpu.generation] if plan.tpu else GPU_ZONES.get(plan.gpu or "")
    name = plan.tpu.generation if plan.tpu else plan.gpu
    if allowed is None or not pool.check_zones:
        return
    without = [zone for zone in zones if zone not in allowed and zone in GCP_ZONES]
    if without:
        nearest = _nearest_zones(without[0], allowed)
        message = f"{without[0]} does not have {name}; write one of {nearest}; `check_zones: false` skips this check"
        yield Problem("gke.pool.zones_lack_accelerator", ("zones",), message, list(zones))
    flex_start_zones = TPU_FLEX_START_ZONES.get(plan.tpu.generation, frozenset()) if plan.tpu else None
    uses_flex_start = any(model.is_flexible and not model.is_queued for model in pool.models)
    if flex_start_zones and uses_flex_start and (zone := next((z for z in zones if z not in flex_start_zones), None)):
        offered = ", ".join(sorted(flex_start_zones))
        message = (
            f"flex-start offers {name} only in {offered}, not in {zone}; change `zones`, or write another capacity; "
            "`check_zones: false` skips this check"
        )
        yield pool_problem("gke.pool.flex_start_unsupported_in_zone", pool, "capacity", message)


def _nearest_zones(zone: str, allowed: frozenset[str]) -> str:
    """Return the allowed zones in the zone's region, else on its continent, else all of them."""
    for area in (zone.rpartition("-")[0], zone.partition("-")[0]):
        if nearest := sorted(candidate for candidate in allowed if candidate.startswith(f"{area}-")):
            return ", ".join(nearest)
    return ", ".join(sorted(allowed))


def _size(_config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    if pool.min_nodes is not None and pool.min_nodes > (nodes := plans[0].nodes):
        message = f"must be at most the number of nodes, {nodes}; lower it"
        yield pool_problem("gke.pool.min_nodes_above_nodes", pool, "min_nodes", message)
    zones = len(plans[0].zones)
    if plans[0].min_nodes is None and plans[0].nodes % zones:
        message = f"must be a multiple of {zones}, the number of zones, in a pool that does not scale; write a multiple"
        yield pool_problem("gke.pool.nodes_not_multiple_of_zones", pool, "nodes", message)
    if pool.min_nodes and plans[0].has_fallback:
        message = "a pool with several capacities or zones must scale from 0; write 0, or remove `min_nodes`"
        yield pool_problem("gke.pool.min_nodes_with_fallback", pool, "min_nodes", message)


def _capacity(config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    """Check the provisioning models of a pool.

    https://cloud.google.com/kubernetes-engine/docs/concepts/dws and
    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations
    """
    plan = plans[0]
    if len(set(pool.models)) != len(pool.models):
        yield pool_problem("gke.pool.capacity_duplicate", pool, "capacity", "has a value twice; remove one")
    reserved = [index for index, model in enumerate(pool.models) if model.is_reserved]
    spot = [index for index, model in enumerate(pool.models) if model.is_spot]
    if reserved and spot and spot[0] < max(reserved):
        message = (
            "has spot before a reservation, which stays unused while spot has capacity; write the reservation first"
        )
        yield pool_problem("gke.pool.spot_before_reservation", pool, "capacity", message)
    if any(model.is_queued for model in pool.models) and len(pool.models) > 1:
        message = "GKE creates queued nodes when Kueue requests them, without a fallback; write only queued"
        yield pool_problem("gke.pool.queued_with_others", pool, "capacity", message)
    family = plan.family
    if plan.machine.name in family.not_on_demand and any(model.is_on_demand for model in pool.models):
        message = f"Google does not offer {plan.machine.name} on demand; write spot, flex-start or reservation:NAME"
        yield pool_problem("gke.pool.capacity_not_on_demand", pool, "capacity", message)
    dynamic = [model for model in pool.models if model.is_flexible]
    if not dynamic:
        return
    if plan.tpu is None and not all(family.queued if model.is_queued else family.flex_start for model in dynamic):
        is_queued = dynamic[0].is_queued
        families = ", ".join(row.name for row in GCE_FAMILIES.values() if (row.queued if is_queued else row.flex_start))
        message = (
            f"{plan.machine.name} does not support {dynamic[0]}; only the families {families} do; "
            "write on-demand, spot or reservation:NAME"
        )
        yield pool_problem("gke.pool.capacity_unsupported_by_machine", pool, "capacity", message)
    if plan.tpu is not None and any(model.is_queued for model in dynamic):
        message = "queued provisioning supports only GPUs; write flex-start"
        yield pool_problem("gke.pool.queued_unsupported_by_tpu", pool, "capacity", message)
    if plan.tpu is not None and not family.flex_start:
        message = f"{plan.tpu.generation} does not support flex-start; write on-demand, spot or reservation:NAME"
        yield pool_problem("gke.pool.flex_start_unsupported_by_tpu", pool, "capacity", message)
    min_minor = 33 if plan.tpu else 32
    if config.kubernetes_version and minor_of(config.kubernetes_version) < min_minor:
        message = f"{dynamic[0]} requires platform.kubernetes_version 1.{min_minor} or newer; raise that version"
        yield pool_problem("gke.pool.capacity_unsupported_by_version", pool, "capacity", message)
    if pool.min_nodes:
        message = f"a pool with {dynamic[0]} must scale from 0; write 0, or remove `min_nodes`"
        yield pool_problem("gke.pool.min_nodes_with_flex_start", pool, "min_nodes", message)


def _placement(_config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    """Check compact placement: https://cloud.google.com/kubernetes-engine/docs/how-to/compact-placement"""
    plan = plans[0]
    if not pool.compact:
        return
    if plan.tpu is not None:
        message = "the topology determines the placement of a TPU slice; remove `compact`"
        yield pool_problem("gke.pool.compact_unsupported_by_tpu", pool, "compact", message)
    elif plan.family.compact == "never":
        message = f"{plan.machine.family.upper()} does not support compact placement; remove `compact`"
        yield pool_problem("gke.pool.compact_unsupported_by_machine", pool, "compact", message)
    elif any(model.is_reserved for model in pool.models):
        message = "the reservation determines the placement; remove `compact`"
        yield pool_problem("gke.pool.compact_with_reservation", pool, "compact", message)
    elif any(plan.model.is_flexible for plan in plans) and not plan.family.compact_flex_start:
        name = plan.machine.name
        message = f"{name} does not support compact placement with flex-start or queued nodes; remove `compact`"
        yield pool_problem("gke.pool.compact_with_flex_start", pool, "compact", message)


def _disk(_config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    """Check boot disk types: https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support"""
    disks, is_set = plans[0].family.disks, "disk_type" in pool.model_fields_set
    if is_set and disks == "hyperdisk" and pool.disk_type != "hyperdisk-balanced":
        message = f"{plans[0].machine.name} supports only hyperdisk-balanced; write that, or remove `disk_type`"
        yield pool_problem("gke.pool.disk_hyperdisk_only", pool, "disk_type", message)
    if pool.disk_type == "hyperdisk-balanced" and disks == "no-hyperdisk":
        message = f"{plans[0].machine.name} does not support Hyperdisk; write pd-ssd or pd-balanced"
        yield pool_problem("gke.pool.disk_hyperdisk_unsupported", pool, "disk_type", message)
    if pool.disk_type == "pd-standard" and disks == "ssd":
        message = f"{plans[0].machine.name} does not support pd-standard; write pd-ssd or pd-balanced"
        yield pool_problem("gke.pool.disk_ssd_only", pool, "disk_type", message)


def _names(_config: GkeConfig, pool: GkePoolConfig, plans: list[NodePoolPlan]) -> Iterator[Problem]:
    longest = max((plan.name for plan in plans), key=len)
    if len(longest) > POOL_NAME_LIMIT:
        message = (
            f"the node pool's name, {longest}, would have {len(longest)} characters; at most {POOL_NAME_LIMIT} are "
            "allowed; shorten the name"
        )
        yield pool_problem("gke.pool.name_too_long", pool, "name", message)


MIN_SYSTEM_VCPUS, MIN_SYSTEM_GIB = 2, 4
"""Size of e2-medium, GKE's default machine type. On one CPU, node agents leave no capacity for kube-dns.

https://cloud.google.com/sdk/gcloud/reference/container/clusters/create#--machine-type,
https://github.com/kubernetes/cloud-provider-gcp/pull/280
"""


def _system_pool_problems(config: GkeConfig) -> Iterator[Problem]:
    path: Path = ("platform", "system_pool")
    pool = config.system_pool
    if pool.max_nodes < pool.nodes:
        message = f"must be at least `nodes`, {pool.nodes}; raise it"
        yield Problem("gke.system_pool.max_below_nodes", (*path, "max_nodes"), message, pool.max_nodes)
    name = system_machine(config)
    try:
        machine = gce_machine(name)
    except ValueError as error:
        yield Problem("gke.system_pool.machine_unknown", (*path, "machine_type"), str(error), name)
        return
    if machine.accelerators:
        message = "has accelerators; write a CPU machine type such as e2-standard-4"
        yield Problem("gke.system_pool.has_accelerators", (*path, "machine_type"), message, name)
    if machine.family in MISSING_MACHINE_FAMILIES.get(config.zone, ()):
        offered = default_pool_machine(config)
        message = f"{config.zone} does not offer {machine.family.upper()} machines; write {offered}"
        yield Problem("gke.system_pool.no_e2", (*path, "machine_type"), message, name)
    if machine.vcpus < MIN_SYSTEM_VCPUS or machine.memory_gib < MIN_SYSTEM_GIB:
        message = (
            f"has {counted(machine.vcpus, 'vCPU')} and {machine.memory_gib:g} GiB; GKE's pods and the operators need "
            f"{MIN_SYSTEM_VCPUS} vCPUs and {MIN_SYSTEM_GIB} GiB or more; write for example e2-standard-2"
        )
        yield Problem("gke.system_pool.too_small", (*path, "machine_type"), message, name)


MULTI_REGIONS = ("US", "EU", "ASIA")
_DUAL_REGIONS = frozenset({"asia1", "eur4", "eur5", "eur7", "eur8", "nam4"})
"""Predefined dual-regions: https://cloud.google.com/storage/docs/locations#predefined"""
_REGISTRY_MULTI_REGIONS = frozenset({"us", "europe", "asia"})
"""Multi-regions of Artifact Registry: https://cloud.google.com/artifact-registry/docs/repositories/repo-locations"""


def _unknown_zone(config: GkeConfig) -> Problem | None:
    """Return a problem if the platform's zone is unknown. Most other rules depend on a valid zone."""
    if config.check_availability and config.zone not in GCP_ZONES:
        return Problem("gke.zone.unknown", ("platform", "zone"), _unknown_zone_message(config.zone), config.zone)
    return None


def _availability_problems(config: GkeConfig) -> Iterator[Problem]:
    """Yield a problem for each location or version that Google Cloud does not offer, except the platform's zone."""
    location = config.bucket.location
    bucket_locations = GCP_REGIONS | _DUAL_REGIONS | {region.lower() for region in MULTI_REGIONS}
    if location is not None and location.lower() not in bucket_locations:
        message = f"is not a bucket location; write a region such as {config.region}, or {', '.join(MULTI_REGIONS)}"
        yield Problem("gke.bucket.location_unknown", ("platform", "bucket", "location"), message, location)
    if not config.check_availability:
        return
    version = config.kubernetes_version
    if version and (error := gke_version_error(version, config.release_channel, datetime.now(tz=UTC).date())):
        code, message = error
        key = "kubernetes_version"
        yield platform_problem(f"gke.kubernetes_version.{code}", config, key, message + SKIP_CHECK_HINT)
    host = config.registry_host
    registry_location = host.removesuffix("-docker.pkg.dev")
    if registry_location != host and registry_location not in GCP_REGIONS | _REGISTRY_MULTI_REGIONS:
        allowed = f"a region such as {config.region}, or us, europe, asia"
        message = f"{registry_location} is not a registry location; write {allowed}{SKIP_CHECK_HINT}"
        yield platform_problem("gke.registry.location_unknown", config, "registry.host", message)
    for index, pool in enumerate(config.pools):
        for zone in (zone for zone in pool.zones if zone not in GCP_ZONES):
            problem = pool_problem("gke.pool.zone_unknown", pool, "zones", _unknown_zone_message(zone))
            yield problem.below("platform", "pools", index)


def _unknown_zone_message(zone: str) -> str:
    """Return the message for an unknown zone: https://cloud.google.com/compute/docs/regions-zones"""
    region = zone.rpartition("-")[0]
    in_region = sorted(candidate for candidate in GCP_ZONES if candidate.rpartition("-")[0] == region)
    suggestions = in_region or get_close_matches(zone, sorted(GCP_ZONES), n=3) or ["us-central1-a"]
    return f"{zone} is not a zone of Google Cloud; write one of {', '.join(suggestions)}{SKIP_CHECK_HINT}"


DOCKER_BRIDGE = IPv4Network("172.17.0.0/16")
ADDRESSES_PER_SYSTEM_NODE = 256
"""Pod addresses of a node with up to 110 pods."""
ADDRESSES_PER_NODE = 2 * PODS_PER_NODE
"""Pod addresses of a node for jobs:
https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""


def _range_problems(config: GkeConfig) -> Iterator[Problem]:
    """Check sizes and overlaps: https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing"""
    ranges = {key: IPv4Network(value) for key, value in config.network.model_dump().items()}
    for one, other in combinations(ranges, 2):
        if ranges[one].overlaps(ranges[other]):
            message = f"overlaps network.{one}, {ranges[one]}; write ranges that do not overlap"
            yield Problem("gke.network.overlap", ("platform", "network", other), message, str(ranges[other]))
    for key, network in ranges.items():
        if not network.is_private:
            message = "is not a private range (RFC 1918); write a range in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
            yield Problem("gke.network.public", ("platform", "network", key), message, str(network))
    for key, length in (("control_plane", 28), ("accelerators", 16)):
        if ranges[key].prefixlen != length:
            message = f"must be a /{length}; change the prefix"
            yield Problem("gke.network.prefix_fixed", ("platform", "network", key), message, str(ranges[key]))
    yield from _reserved_ranges(ranges)
    yield from _too_small_ranges(config, ranges)
    yield from open_to_internet_problems(config.authorized_networks)


def _reserved_ranges(ranges: dict[str, IPv4Network]) -> Iterator[Problem]:
    """Check the ranges against Docker's bridge on nodes, and against the sizes that GKE allows.

    https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#defaults_limits
    """
    for key, network in ranges.items():
        if network.overlaps(DOCKER_BRIDGE):
            message = f"overlaps {DOCKER_BRIDGE}, the container bridge of every node; write another range"
            yield Problem("gke.network.docker_bridge", ("platform", "network", key), message, str(network))
    for key, (shortest, longest) in {"services": (16, 27), "pods": (9, 24)}.items():
        if not shortest <= ranges[key].prefixlen <= longest:
            message = f"must be a /{shortest} to /{longest}; change the prefix"
            yield Problem("gke.network.prefix_out_of_range", ("platform", "network", key), message, str(ranges[key]))


def _too_small_ranges(config: GkeConfig, ranges: dict[str, IPv4Network]) -> Iterator[Problem]:
    """Check that all nodes fit the ranges: https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""
    try:
        jobs = sum(num_nodes(pool) for pool in config.pools)
    except ValueError:
        return
    system = config.system_pool.max_nodes
    # Google reserves four addresses of each subnet.
    for key, available, needed in (
        ("nodes", ranges["nodes"].num_addresses - 4, system + jobs),
        ("pods", ranges["pods"].num_addresses, system * ADDRESSES_PER_SYSTEM_NODE + jobs * ADDRESSES_PER_NODE),
    ):
        if needed > available:
            message = f"has {available} addresses, but {system + jobs} nodes need {needed}; write a larger range"
            yield Problem("gke.network.too_few_addresses", ("platform", "network", key), message, str(ranges[key]))
