"""Validation of versions, regions, zones and address ranges of a GKE platform, with sources. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from ipaddress import IPv4Network
from itertools import combinations

from infra.authorized_networks import open_to_internet_problems
from infra.gcp.config import GkeConfig
from infra.gcp.pools import num_nodes
from infra.hardware.accelerators import GCP_REGIONS, GCP_ZONES
from infra.hardware.versions import gke_version_error
from settings.problem import Path, Problem
from settings.problems import SKIP_CHECK_HINT

MULTI_REGIONS = ("US", "EU", "ASIA")
_DUAL_REGIONS = frozenset({"asia1", "eur4", "eur5", "eur7", "eur8", "nam4"})
"""Predefined dual-regions: https://cloud.google.com/storage/docs/locations#predefined"""
_REGISTRY_MULTI_REGIONS = frozenset({"us", "europe", "asia"})
"""Multi-regions of Artifact Registry: https://cloud.google.com/artifact-registry/docs/repositories/repo-locations"""


def unknown_zone(config: GkeConfig) -> Problem | None:
    """Return a problem if the platform's zone is unknown. Most other rules depend on a valid zone."""
    if config.check_availability and config.zone not in GCP_ZONES:
        return Problem("gke.zone.unknown", ("platform", "zone"), _unknown_zone_message(config.zone), config.zone)
    return None


def availability_problems(config: GkeConfig) -> Iterator[Problem]:
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
        path: Path = ("platform", "kubernetes_version")
        yield Problem(f"gke.kubernetes_version.{code}", path, message + SKIP_CHECK_HINT, version)
    host = config.registry.host
    registry_location = host.removesuffix("-docker.pkg.dev")
    if registry_location != host and registry_location not in GCP_REGIONS | _REGISTRY_MULTI_REGIONS:
        message = (
            f"{registry_location} is not a registry location; write a region such as {config.region}, or us, europe, "
            "asia"
        )
        yield Problem(
            "gke.registry.location_unknown", ("platform", "registry", "host"), message + SKIP_CHECK_HINT, host
        )
    for index, pool in enumerate(config.pools):
        path = ("platform", "pools", index, "zones")
        yield from (
            Problem("gke.pool.zone_unknown", path, _unknown_zone_message(zone), list(pool.zones))
            for zone in pool.zones
            if zone not in GCP_ZONES
        )


def _unknown_zone_message(zone: str) -> str:
    """Return the message for an unknown zone: https://cloud.google.com/compute/docs/regions-zones"""
    region = zone.rpartition("-")[0]
    in_region = sorted(candidate for candidate in GCP_ZONES if candidate.rpartition("-")[0] == region)
    suggestions = in_region or get_close_matches(zone, sorted(GCP_ZONES), n=3) or ["us-central1-a"]
    return f"{zone} is not a zone of Google Cloud; write one of {', '.join(suggestions)}{SKIP_CHECK_HINT}"


DOCKER_BRIDGE = IPv4Network("172.17.0.0/16")
ADDRESSES_PER_SYSTEM_NODE = 256
"""Pod addresses of a node with up to 110 pods."""
ADDRESSES_PER_NODE = 64
"""Pod addresses of a node with up to 32 pods:
https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""


def range_problems(config: GkeConfig) -> Iterator[Problem]:
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
            yield Problem(
                "gke.network.fixed_size", ("platform", "network", key), f"must be a /{length}", str(ranges[key])
            )
    yield from _reserved_ranges(ranges)
    yield from _too_small_ranges(config, ranges)
    yield from open_to_internet_problems(config.authorized_networks)


def _reserved_ranges(ranges: dict[str, IPv4Network]) -> Iterator[Problem]:
    """Check ranges against those that nodes and GKE reserve.

    https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#defaults_limits
    """
    for key, network in ranges.items():
        if network.overlaps(DOCKER_BRIDGE):
            message = f"overlaps {DOCKER_BRIDGE}, the container bridge of every node; write another range"
            yield Problem("gke.network.docker_bridge", ("platform", "network", key), message, str(network))
    for key, (shortest, longest) in {"services": (16, 27), "pods": (9, 24)}.items():
        if not shortest <= ranges[key].prefixlen <= longest:
            message = f"must be a /{shortest} to /{longest}"
            yield Problem("gke.network.size", ("platform", "network", key), message, str(ranges[key]))


def _too_small_ranges(config: GkeConfig, ranges: dict[str, IPv4Network]) -> Iterator[Problem]:
    """Check that the ranges fit all nodes: https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""
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
