"""Changes of an existing EKS cluster: those that AWS accepts, those that are rejected, and the cluster in the state."""

from __future__ import annotations

from typing import Any

import pytest

from infra.aws.config import EksConfig
from infra.aws.rules import DeployedCluster, cluster_in, deployed_cluster, update_problems
from tests.commands.platforms import eks


def after(**changes: Any) -> EksConfig:
    """Return settings of an existing cluster with version 1.34."""
    return eks("train", **{"kubernetes_version": "1.34", "check_availability": False, **changes})


CLUSTER = deployed_cluster(after())
UNSUPPORTED_CHANGES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "a zone less": ({"zones": ["us-west-2a", "us-west-2b"]}, ("eks.zones.fixed", "platform.zones")),
    "other zones": ({"zones": ["us-west-2b", "us-west-2c"]}, ("eks.zones.fixed", "platform.zones")),
    "zones in another order": (
        {"zones": ["us-west-2b", "us-west-2a", "us-west-2c"]},
        ("eks.zones.fixed", "platform.zones"),
    ),
    "another VPC": ({"network": {"vpc": "10.1.0.0/16"}}, ("eks.network.vpc_fixed", "platform.network.vpc")),
    "a version skipped": (
        {"kubernetes_version": "1.36"},
        ("eks.kubernetes_version.skipped", "platform.kubernetes_version"),
    ),
    "a version down": (
        {"kubernetes_version": "1.33"},
        ("eks.kubernetes_version.downgrade", "platform.kubernetes_version"),
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED_CHANGES)
def test_update_problems_of_unsupported_change_have_code_and_path(name: str) -> None:
    changes, problem = UNSUPPORTED_CHANGES[name]
    assert [(each.code, ".".join(map(str, each.path))) for each in update_problems(CLUSTER, after(**changes))] == [
        problem
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kubernetes_version": "1.35"},
        {"network": {"services": "172.21.0.0/16"}},
        {"region": "eu-west-1", "network": {"vpc": "10.1.0.0/16"}},
    ],
)
def test_update_problems_of_supported_change_are_empty(changes: dict[str, Any]) -> None:
    assert update_problems(CLUSTER, after(**changes)) == []


def resource(kind: str, name: str, **outputs: Any) -> dict[str, Any]:
    """Return a resource of a state."""
    return {"urn": f"urn:pulumi:s::p::a$aws:{kind}::{name}", "type": f"aws:{kind}", "id": name, "outputs": outputs}


def subnet(kind: str, zone: str, network: str) -> dict[str, Any]:
    """Return a subnet of a state."""
    return resource("ec2/subnet:Subnet", f"network-{kind}-{zone}", availabilityZone=zone, cidrBlock=network)


def test_cluster_in_state_has_version_and_zones_by_address_range() -> None:
    resources = [
        resource("ec2/vpc:Vpc", "network-vpc", cidrBlock="10.0.0.0/16"),
        subnet("private", "us-west-2c", "10.0.64.0/18"),
        subnet("public", "us-west-2a", "10.0.192.0/20"),
        subnet("private", "us-west-2b", "10.0.0.0/18"),
        resource("eks/cluster:Cluster", "cluster-eks", version="1.35"),
    ]
    assert cluster_in({"resources": resources}) == DeployedCluster(
        region="us-west-2", vpc="10.0.0.0/16", zones=("us-west-2b", "us-west-2c"), version="1.35"
    )
    assert cluster_in({"resources": resources[:-1]}) is None
    assert cluster_in({}) is None
