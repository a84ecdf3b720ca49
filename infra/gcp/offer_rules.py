"""Validation of versions, regions and zones against Google Cloud's offers. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches

from infra.gcp.config import GkeConfig
from infra.hardware.versions import unoffered
from infra.hardware.zones import GCP_REGIONS, GCP_ZONES
from settings.problem import Path, Problem
from settings.problems import SKIPPED

MULTI_REGIONS = ("US", "EU", "ASIA")
_DUAL_REGIONS = frozenset({"asia1", "eur4", "eur5", "eur7", "eur8", "nam4"})
"""Predefined dual-regions: https://cloud.google.com/storage/docs/locations#predefined"""
_REGISTRIES = frozenset({"us", "europe", "asia"})
"""Multi-regions of Artifact Registry: https://cloud.google.com/artifact-registry/docs/repositories/repo-locations"""


def unknown_zone(config: GkeConfig) -> Problem | None:
    """Reject an unknown platform zone. Most other rules depend on a valid zone."""
    if config.check_availability and config.zone not in GCP_ZONES:
        return Problem("gke.zone.unknown", ("platform", "zone"), _no_zone(config.zone), config.zone)
    return None


def offer_problems(config: GkeConfig) -> Iterator[Problem]:
    """Yield a problem for each setting that Google Cloud does not offer, except the platform's zone."""
    location = config.bucket.location
    places = GCP_REGIONS | _DUAL_REGIONS | {each.lower() for each in MULTI_REGIONS}
    if location is not None and location.lower() not in places:
        message = f"is not a bucket location; write a region such as {config.region}, or {', '.join(MULTI_REGIONS)}"
        yield Problem("gke.bucket.location_unknown", ("platform", "bucket", "location"), message, location)
    if not config.check_availability:
        return
    version = config.kubernetes_version
    if version and (wrong := unoffered(version, config.release_channel, datetime.now(tz=UTC).date())):
        code, message = wrong
        path: Path = ("platform", "kubernetes_version")
        yield Problem(f"gke.kubernetes_version.{code}", path, message + SKIPPED, version)
    host = config.registry.host
    place = host.removesuffix("-docker.pkg.dev")
    if place != host and place not in GCP_REGIONS | _REGISTRIES:
        message = f"{place} is not a registry location; write a region such as {config.region}, or us, europe, asia"
        yield Problem("gke.registry.location_unknown", ("platform", "registry", "host"), message + SKIPPED, host)
    for index, pool in enumerate(config.pools):
        path = ("platform", "pools", index, "zones")
        yield from (
            Problem("gke.pool.zone_unknown", path, _no_zone(zone), list(pool.zones))
            for zone in pool.zones
            if zone not in GCP_ZONES
        )


def _no_zone(zone: str) -> str:
    """Return the message for an unknown zone: https://cloud.google.com/compute/docs/regions-zones"""
    region = zone.rpartition("-")[0]
    near = sorted(each for each in GCP_ZONES if each.rpartition("-")[0] == region)
    some = near or get_close_matches(zone, sorted(GCP_ZONES), n=3) or ["us-central1-a"]
    return f"{zone} is not a zone of Google Cloud; write one of {', '.join(some)}{SKIPPED}"
