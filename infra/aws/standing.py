"""Changes that AWS rejects on an existing EKS cluster: VPC, zones, and version steps. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from infra.aws.config import EksConfig
from infra.hardware.versions import minor_of
from settings.problem import Path, Problem

START_OVER = "or run `make down` and then `make up`, which keeps the bucket unless `bucket.keep` is false"

CLUSTER = "aws:eks/cluster:Cluster"
VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
PRIVATE = "network-private-"
"""Name prefix of the cluster's subnets."""


@dataclass(frozen=True, kw_only=True)
class StandingCluster:
    """Version of an existing cluster, and its settings that cannot change."""

    region: str
    """Region of the cluster."""
    vpc: str
    """Range of the VPC."""
    zones: tuple[str, ...]
    """Zones of the subnets, in the order of their ranges."""
    version: str
    """Minor version of the control plane."""


def standing(config: EksConfig) -> StandingCluster:
    """Return the cluster that the settings describe."""
    return StandingCluster(
        region=config.region, vpc=config.network.vpc, zones=config.all_zones, version=config.kubernetes_version
    )


def cluster_in(deployment: Mapping[str, Any]) -> StandingCluster | None:
    """Return the cluster in a deployment of `pulumi stack export`, or None."""
    made = [each for each in deployment.get("resources") or [] if each.get("id") and not each.get("delete")]
    clusters = [each["outputs"] for each in made if each["type"] == CLUSTER]
    vpcs = [each["outputs"] for each in made if each["type"] == VPC]
    if not clusters or not vpcs:
        return None
    subnets = [
        (IPv4Network(each["outputs"]["cidrBlock"]), str(each["outputs"]["availabilityZone"]))
        for each in made
        if each["type"] == SUBNET and each["urn"].rpartition("::")[2].startswith(PRIVATE)
    ]
    zones = tuple(zone for _range, zone in sorted(subnets))
    return StandingCluster(
        region=zones[0][:-1] if zones else "",
        vpc=str(vpcs[0]["cidrBlock"]),
        zones=zones,
        version=str(clusters[0]["version"]),
    )


def refused_changes(cluster: StandingCluster, config: EksConfig) -> list[Problem]:
    """Return the settings that AWS would reject for an existing cluster.

    A new region replaces the cluster, so every setting can change with it. Otherwise a cluster keeps its VPC and the
    zones of its subnets:
    https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html#network-requirements-subnets
    """
    if cluster.region != config.region:
        return []
    found = []
    if cluster.vpc != config.network.vpc:
        message = f"cannot change while the cluster exists; its VPC is {cluster.vpc}; write that, {START_OVER}"
        found.append(Problem("eks.network.vpc_fixed", ("platform", "network", "vpc"), message, config.network.vpc))
    if cluster.zones != config.all_zones:
        zones = f"[{', '.join(cluster.zones)}]"
        message = (
            f"cannot change while the cluster exists; its zones are {zones}; write them in that order, {START_OVER}"
        )
        found.append(Problem("eks.zones.fixed", ("platform", "zones"), message, list(config.all_zones)))
    return [*found, *_version(cluster.version, config.kubernetes_version)]


def _version(now: str, asked: str) -> Iterator[Problem]:
    """Reject version downgrades and steps of more than one minor version.

    https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html, UpdateClusterVersion
    """
    path: Path = ("platform", "kubernetes_version")
    steps = minor_of(asked) - minor_of(now)
    if steps > 1:
        step = f"1.{minor_of(now) + 1}"
        message = (
            f"is {steps} minor versions above the cluster's, {now}; EKS upgrades one at a time; write '{step}', run "
            "`make up` until all nodes have it, and then write the next"
        )
        yield Problem("eks.kubernetes_version.skipped", path, message, asked)
    elif steps < 0:
        message = (
            f"is below the cluster's version, {now}, which EKS does not allow; write '{now}' or the next minor version "
            "(EKS upgrades a cluster automatically when standard support of its version ends)"
        )
        yield Problem("eks.kubernetes_version.downgrade", path, message, asked)
