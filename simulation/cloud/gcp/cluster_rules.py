"""Rules of GKE clusters, and the version of their control plane."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from infra.local.settings import KUBERNETES_VERSION
from simulation.cloud.gcp.network_rules import SUBNETWORK, parsed, ranges_of
from simulation.cloud.kind import Found, admission, at, rule
from simulation.cloud.state import CloudState, Properties

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
NAME_LIMIT = 40
_LOCATION = re.compile(r"[a-z]+(-[a-z]+)+\d+(-([a-z]|ai\d+[a-z]?))?")
_VERSION = re.compile(r"1\.\d+(\.\d+(-gke\.\d+)?)?|latest|-")
CHANNELS = ("UNSPECIFIED", "RAPID", "REGULAR", "STABLE", "EXTENDED")


def version(found: Properties) -> str:
    """Return the version of the control plane, in GKE's format."""
    asked = str(found.get("minMasterVersion") or "")
    return asked if "-gke." in asked else f"{KUBERNETES_VERSION}-gke.1000000"


def _dns_endpoint(found: Properties) -> Properties:
    return {"dnsEndpointConfig": {"endpoint": found["__settings"].get("endpoint", "cluster.invalid")}}


def _certificate(found: Properties) -> Properties:
    return {"clusterCaCertificate": found["__settings"].get("certificate", "")}


ACCESS: Mapping[str, Callable[[Properties], object]] = {
    "endpoint": lambda found: found["__settings"].get("endpoint", "cluster.invalid"),
    "controlPlaneEndpointsConfig": _dns_endpoint,
    "masterAuth": _certificate,
}
"""Outputs with the API server's address and certificate, from the rehearsal's settings."""


@rule("https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#Cluster")
def cluster_name(inputs: Properties) -> Found:
    """Require a valid name of at most 40 characters."""
    name = inputs.get("name")
    if isinstance(name, str) and not (NAME.fullmatch(name) and len(name) <= NAME_LIMIT):
        yield "name", f"{name!r} must be 1 to {NAME_LIMIT} lower-case letters, digits and '-', first a letter"


@rule("https://cloud.google.com/compute/docs/regions-zones")
def location(inputs: Properties) -> Found:
    """Require a region or a zone, and node locations within its region."""
    place = inputs.get("location")
    if not isinstance(place, str):
        return
    if not _LOCATION.fullmatch(place):
        yield "location", f"{place!r} is neither a region such as us-central1 nor a zone such as us-central1-a"
        return
    region = place if place[-1].isdigit() else place.rpartition("-")[0]
    for index, zone in enumerate(inputs.get("nodeLocations") or []):
        if isinstance(zone, str) and not zone.startswith(f"{region}-"):
            yield f"nodeLocations[{index}]", f"{zone} is not in the cluster's region, {region}"


@rule("https://cloud.google.com/kubernetes-engine/docs/concepts/release-channels")
def release_channel(inputs: Properties) -> Found:
    """Require a release channel that exists and a valid version."""
    channel = at(inputs, "releaseChannel.channel")
    if isinstance(channel, str) and channel not in CHANNELS:
        yield "releaseChannel.channel", f"{channel!r} must be one of {', '.join(CHANNELS)}"
    asked = inputs.get("minMasterVersion")
    if isinstance(asked, str) and not _VERSION.fullmatch(asked):
        yield "minMasterVersion", f"{asked!r} is not a version such as 1.34 or 1.34.1-gke.100"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/private-clusters")
def control_plane_range(inputs: Properties) -> Found:
    """Require a /28 for the control plane."""
    where = "privateClusterConfig.masterIpv4CidrBlock"
    text = at(inputs, where)
    if isinstance(text, str) and text:
        network = parsed(text)
        if network is None or network.prefixlen != 28:
            yield where, f"{text!r} must be an IPv4 network of /28"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity")
def workload_pool(inputs: Properties) -> Found:
    """Require the project's only workload identity pool."""
    pool, project = at(inputs, "workloadIdentityConfig.workloadPool"), inputs.get("project")
    if isinstance(pool, str) and isinstance(project, str) and pool != f"{project}.svc.id.goog":
        yield "workloadIdentityConfig.workloadPool", f"{pool!r} must be {project}.svc.id.goog"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr")
def pods_per_node(inputs: Properties) -> Found:
    """Require 8 to 256 pods per node."""
    pods = inputs.get("defaultMaxPodsPerNode")
    if isinstance(pods, int) and not 8 <= pods <= 256:
        yield "defaultMaxPodsPerNode", f"{pods} must be 8 to 256"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/creating-a-regional-cluster")
def has_first_nodes(inputs: Properties) -> Found:
    """Require initialNodeCount, unless the cluster uses Autopilot or declares node pools.

    GKE creates a default pool in other clusters, even if removeDefaultNodePool deletes it at once.
    """
    if inputs.get("enableAutopilot") or inputs.get("nodePools"):
        return
    if "initialNodeCount" not in inputs:
        yield "initialNodeCount", "must be set for a cluster without node pools of its own"


@admission("https://cloud.google.com/kubernetes-engine/docs/how-to/alias-ips")
def secondary_ranges_exist(inputs: Properties, state: CloudState) -> Found:
    """Require that the pod and service ranges are secondary ranges of the cluster's subnet."""
    subnet = state.find(str(inputs.get("subnetwork")), SUBNETWORK)
    if subnet is None:
        return
    names = [each.get("rangeName") for each in subnet.inputs.get("secondaryIpRanges") or []]
    for key in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
        name = at(inputs, f"ipAllocationPolicy.{key}")
        if isinstance(name, str) and name not in names:
            yield f"ipAllocationPolicy.{key}", f"{name!r} is not a secondary range of subnet {subnet.inputs['name']}"


@admission("https://cloud.google.com/kubernetes-engine/docs/how-to/private-clusters")
def control_plane_apart(inputs: Properties, state: CloudState) -> Found:
    """Require a control plane range that does not overlap the subnet's ranges."""
    where = "privateClusterConfig.masterIpv4CidrBlock"
    ours = parsed(at(inputs, where))
    subnet = state.find(str(inputs.get("subnetwork")), SUBNETWORK)
    for _, text in ranges_of(subnet.inputs) if subnet and ours else []:
        theirs = parsed(text)
        if ours and theirs and ours.overlaps(theirs):
            yield where, f"{ours} overlaps {theirs} of the cluster's subnet"


RULES = (
    cluster_name,
    location,
    release_channel,
    control_plane_range,
    workload_pool,
    pods_per_node,
    has_first_nodes,
    secondary_ranges_exist,
    control_plane_apart,
)
