"""Rules between the settings of an EKS platform, and changes that AWS rejects on a deployed cluster."""

from __future__ import annotations

from typing import Any

import pytest

from infra.aws.config import EksConfig
from infra.aws.rules import DeployedCluster, cluster_in, deployed_cluster, update_problems
from stack.config import parse
from tests.commands.platforms import eks as eks_config
from tests.problems import problems_of
from tests.unit.stack_settings import CAPACITY_BLOCK, P5, RESERVATION, code_ids, eks, eks_pool

G5 = {"machine_type": "g5.xlarge"}
ZONES = ["us-west-2a", "us-west-2b"]
P5_BLOCK = {**P5, "capacity": CAPACITY_BLOCK, "zones": "us-west-2a"}
P5_RESERVED = {**P5, "capacity": RESERVATION, "zones": "us-west-2a"}
SMALL_VPC = {"network": {"vpc": "10.0.0.0/18"}}
EKS_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    (eks_pool(**G5, capacity=RESERVATION, zones=ZONES), "eks.pool.reservation_zones", "pools.0.zones"),
    (eks(network={"services": "10.100.0.0/30"}), "eks.network.services_size", "network.services"),
    (eks(zones=["us-west-2", "us-west-2b"]), "settings.aws_zone", "zones.0"),
    (eks(zones=["us-west-2a", "us-west-2z"]), "eks.zones.unknown", "zones"),
    (eks(zones=["us-west-2a"]), "eks.zones.count", "zones"),
    (eks(network={"services": "10.0.0.0/20"}), "eks.network.overlap", "network.services"),
    (eks(network={"services": "100.64.0.0/16"}), "eks.network.public", "network.services"),
    (eks(authorized_networks=["0.0.0.0/0"]), "cloud.authorized_networks.open_to_all", "authorized_networks.0"),
    (
        eks(authorized_networks=["0.0.0.0/1", "128.0.0.0/1"]),
        "cloud.authorized_networks.open_to_all",
        "authorized_networks.0",
    ),
    (eks(authorized_networks=["10.1.0.0/16"]), "eks.authorized_networks.private", "authorized_networks.0"),
    (eks(admins=["arn:aws:iam::123456789012:role/a"] * 2), "eks.admins.duplicate", "admins.1"),
    (eks_pool(machine_type="p5.large"), "eks.pool.machine_unknown", "pools.0.machine_type"),
    (eks_pool(**P5, zones=ZONES), "eks.pool.efa_zones", "pools.0.zones"),
    (
        eks_pool(machine_type="g5.48xlarge", capacity=CAPACITY_BLOCK, zones="us-west-2a"),
        "eks.pool.capacity_block_machine",
        "pools.0.capacity",
    ),
    (eks_pool(**P5_BLOCK, placement_group=True), "eks.pool.placement_capacity_block", "pools.0.placement_group"),
    (eks_pool(**P5_RESERVED, placement_group=True), "eks.pool.placement_reservation", "pools.0.placement_group"),
    (eks_pool(**P5, capacity=RESERVATION), "eks.pool.reservation_without_zone", "pools.0.zones"),
    (eks(system_pool={"machine_type": "g5.xlarge"}), "eks.system_pool.has_gpus", "system_pool.machine_type"),
    (eks_pool(**G5, placement_group=True, zones=ZONES), "eks.pool.placement_zones", "pools.0.zones"),
    (eks(kubernetes_version="1.99"), "eks.kubernetes_version.not_yet_offered", "kubernetes_version"),
    (eks(region="us-west-1"), "eks.zones.by_account", "zones"),
    (eks_pool(**P5) | {"region": "sa-east-1"}, "eks.pool.machine_not_in_region", "pools.0.machine_type"),
    (eks(region="us-west-9"), "eks.region.unknown", "region"),
    (eks_pool(disk_size_gb=10), "settings.greater_than_equal", "pools.0.disk_size_gb"),
    (eks(region="us-central1"), "settings.aws_region", "region"),
    (eks(account="123"), "settings.aws_account", "account"),
    (eks(account=123456789012), "settings.string_type", "account"),
    (eks(name="a" * 101), "settings.eks_name", "name"),
    (eks(kubernetes_version="1.23"), "eks.kubernetes_version.no_longer_offered", "kubernetes_version"),
    (eks(kubernetes_version="1.33"), "eks.kubernetes_version.standard_support_ended", "kubernetes_version"),
    (eks(zones=["us-east-1a", "us-west-2b"]), "eks.zones.other_region", "zones"),
    (
        eks_pool(**P5) | {"kubernetes_version": "1.32", "check_availability": False},
        "eks.pool.efa_version",
        "pools.0.efa",
    ),
    (eks(network={"vpc": "8.8.0.0/16"}), "eks.network.public", "network.vpc"),
    (eks(network={"vpc": "10.0.0.0/24"}), "eks.network.vpc_size", "network.vpc"),
    (eks(admins=["me"]), "settings.aws_principal", "admins.0"),
    (eks(bucket={"name": "abc-s3alias"}), "eks.bucket.name_reserved", "bucket.name"),
    (eks(name="a" * 60), "eks.name.too_long_for_bucket", "name"),
    (eks_pool(machine_type="c7i.large", nodes=15_000) | SMALL_VPC, "eks.network.too_few_addresses", "network.vpc"),
    (eks_pool(**P5, nodes=41, zones="us-west-2a") | SMALL_VPC, "eks.network.too_few_addresses", "network.vpc"),
    (eks_pool(**G5, efa=True), "eks.pool.efa_machine", "pools.0.efa"),
    (eks_pool(**P5, zones="us-west-2d"), "eks.pool.zones_outside_platform", "pools.0.zones"),
    (eks_pool(**P5, capacity="flex-start"), "settings.eks_capacity", "pools.0.capacity"),
    (eks_pool(capacity=["spot", "on-demand"]), "settings.several_capacities", "pools.0.capacity"),
    (eks(bucket={"name": "a.example.com"}), "settings.s3_bucket_name", "bucket.name"),
]
"""Platform, and the code and path of its problem. The path starts below `platform`."""


@pytest.mark.parametrize(("platform", "code", "path"), EKS_PROBLEMS, ids=code_ids(EKS_PROBLEMS))
def test_eks_invalid_setting_has_code_and_path(platform: dict[str, Any], code: str, path: str) -> None:
    assert problems_of({"platform": platform, "jobs": []}) == [(code, f"platform.{path}")]


VALID_EKS: list[dict[str, Any]] = [
    eks(),
    eks_pool(**P5_BLOCK),
    eks(name="a" * 60, bucket={"name": "checkpoints-of-ours"}),
    eks(image={"prebuilt": f"a/b@sha256:{'0' * 64}"}),
    eks(kubernetes_version="1.40", check_availability=False),
    eks(region="ap-northeast-1"),
]


@pytest.mark.parametrize("platform", VALID_EKS, ids=str)
def test_eks_valid_settings_are_accepted(platform: dict[str, Any]) -> None:
    assert parse({"platform": platform, "jobs": []}).platform.kind == "eks"


@pytest.mark.parametrize("image", [{}, {"name": "mine"}], ids=["default", "other key"])
def test_eks_image_without_platforms_is_for_x86_64_only(image: dict[str, Any]) -> None:
    assert EksConfig.model_validate(eks(image=image)).image.platforms == ("linux/amd64",)


def test_eks_up_problems_reject_documentation_ranges() -> None:
    def up_problems(*networks: str) -> list[str]:
        cloud = parse({"platform": eks(authorized_networks=[*networks]), "jobs": []}).cloud
        return cloud.up_problems("/checkout", "eks")

    public, documentation = "8.8.8.8/32", "203.0.113.128/25"
    assert up_problems(public) == []
    (line,) = up_problems(public, documentation)
    assert documentation in line


def cluster_settings(**changes: Any) -> EksConfig:
    """Return the settings of a cluster of version 1.34 with these changes."""
    return eks_config("train", **{"kubernetes_version": "1.34", "check_availability": False, **changes})


DEPLOYED = deployed_cluster(cluster_settings())
UNSUPPORTED_CHANGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "one zone fewer": ({"zones": ["us-west-2a", "us-west-2b"]}, "eks.zones.fixed", "zones"),
    "other zones": ({"zones": ["us-west-2b", "us-west-2c"]}, "eks.zones.fixed", "zones"),
    "zones in another order": ({"zones": ["us-west-2b", "us-west-2a", "us-west-2c"]}, "eks.zones.fixed", "zones"),
    "another network": ({"network": {"vpc": "10.1.0.0/16"}}, "eks.network.vpc_fixed", "network.vpc"),
    "a skipped version": ({"kubernetes_version": "1.36"}, "eks.kubernetes_version.skipped", "kubernetes_version"),
    "an older version": ({"kubernetes_version": "1.33"}, "eks.kubernetes_version.downgrade", "kubernetes_version"),
}


@pytest.mark.parametrize("name", UNSUPPORTED_CHANGES)
def test_update_problems_of_unsupported_change_have_code_and_path(name: str) -> None:
    changes, code, path = UNSUPPORTED_CHANGES[name]
    found = update_problems(DEPLOYED, cluster_settings(**changes))
    assert [(each.code, ".".join(map(str, each.path))) for each in found] == [(code, f"platform.{path}")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kubernetes_version": "1.35"},
        {"network": {"services": "172.21.0.0/16"}},
        {"region": "eu-west-1", "network": {"vpc": "10.1.0.0/16"}},
    ],
    ids=str,
)
def test_update_problems_of_supported_change_are_empty(changes: dict[str, Any]) -> None:
    assert update_problems(DEPLOYED, cluster_settings(**changes)) == []


def resource(kind: str, name: str, **outputs: Any) -> dict[str, Any]:
    """Return a resource in the format of Pulumi's state."""
    return {"urn": f"urn:pulumi:s::p::a$aws:{kind}::{name}", "type": f"aws:{kind}", "id": name, "outputs": outputs}


def subnet(kind: str, zone: str, network: str) -> dict[str, Any]:
    """Return a subnet in the format of Pulumi's state."""
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


@pytest.mark.parametrize(
    ("platform", "codes"),
    [
        ({"zones": ["us-west-2a", "us-west-2b", "us-west-2c"]}, []),
        ({"zones": ["us-west-2a", "us-west-2b"]}, []),
        ({"zones": ["us-west-2a", "us-west-2d", "us-west-2c"]}, []),
        ({"zones": ["us-west-2a", "us-west-2b", "us-west-2d"]}, ["eks.zones.in_use"]),
        ({"zones": ["us-west-2c", "us-west-2b"]}, ["eks.zones.in_use"]),
        ({"network": {"vpc": "10.1.0.0/16"}}, ["eks.network.vpc_in_use"]),
    ],
    ids=["same", "last zone removed", "missing subnet", "other zone", "other order", "other range"],
)
def test_zone_of_an_existing_subnet_is_fixed_without_a_cluster(platform: dict[str, Any], codes: list[str]) -> None:
    resources = [
        resource("ec2/vpc:Vpc", "network-vpc", cidrBlock="10.0.0.0/16"),
        subnet("private", "us-west-2a", "10.0.0.0/18"),
        subnet("public", "us-west-2a", "10.0.192.0/20"),
        subnet("private", "us-west-2c", "10.0.128.0/18"),
    ]
    cloud = parse({"platform": {**eks(), "pools": [], **platform}, "jobs": []}).cloud
    assert [each.code for each in cloud.problems_in_state({"resources": resources})] == codes


@pytest.mark.parametrize(("version", "is_stale"), [("1.34", False), ("1.35", True)])
def test_cluster_with_another_version_than_the_settings_is_refreshed(version: str, is_stale: bool) -> None:
    cluster = resource("eks/cluster:Cluster", "cluster-eks", version=version)
    cloud = parse({"platform": eks(kubernetes_version="1.34", check_availability=False), "jobs": []}).cloud
    assert cloud.stale_resources({"resources": [cluster]}) == ([cluster["urn"]] if is_stale else [])
    assert cloud.stale_resources({}) == []


def test_node_group_with_a_failed_or_unfinished_creation_is_refreshed_and_replaced() -> None:
    cloud = parse({"platform": eks(), "jobs": []}).cloud
    kind = "eks/nodeGroup:NodeGroup"
    unknown = {**resource(kind, "unknown"), "initErrors": ["unexpected state 'CREATE_FAILED'"]}
    failed, active = resource(kind, "failed", status="CREATE_FAILED"), resource(kind, "active", status="ACTIVE")
    creating = resource(kind, "creating", status="CREATING")
    deployment = {"resources": [unknown, failed, active, creating, {**failed, "delete": True}]}
    assert cloud.stale_resources(deployment) == [unknown["urn"], failed["urn"], creating["urn"]]
    assert cloud.failed_resources(deployment) == [failed["urn"]]
