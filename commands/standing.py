"""The stack's EKS cluster in its state, and settings that AWS would reject for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Any

from commands.stack import pulumi
from infra.aws.config import EksConfig
from infra.aws.standing import StandingCluster, refused_changes

CLUSTER = "aws:eks/cluster:Cluster"
VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
PRIVATE = "network-private-"
"""Prefix of the names of the cluster's subnets."""


def cluster_in(deployment: Mapping[str, Any]) -> StandingCluster | None:
    """Return the cluster in a deployment of `pulumi stack export`; None if it has none."""
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


def refused_for(stack: str, config: EksConfig) -> list[str]:
    """Return the reasons why AWS would reject the change of the stack's cluster, one line each."""
    exported = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))
    cluster = cluster_in(exported["deployment"])
    return [str(each) for each in refused_changes(cluster, config)] if cluster else []
