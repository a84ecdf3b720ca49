"""Wrong settings of EKS are refused when they are read: key, value, what is allowed, what to do."""

from __future__ import annotations

from typing import Any

import pytest

from stack.config import parse
from tests.problems import refused
from tests.unit.cloud_settings import BLOCK, P5, RESERVATION, eks, group
from tests.unit.refused import assert_refused_in_one_line

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "zone that AWS has not": (
        eks(zones=["us-west-2a", "us-west-2z"]),
        ("platform.zones", "us-west-2 does not have zone us-west-2z", "us-west-2a"),
    ),
    "days in quotes": (eks(log_days="30"), ('log_days = "30"', "180, 365, without quotes: 30")),
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "one zone": (eks(zones=["us-west-2a"]), ("eks.zones.count", "platform.zones")),
    "services inside the VPC": (
        eks(network={"services": "10.0.0.0/20"}),
        ("eks.network.overlap", "platform.network.services"),
    ),
    "services on the loopback": (
        eks(network={"services": "127.0.0.0/16"}),
        ("eks.network.public", "platform.network.services"),
    ),
    "services in carrier-grade NAT": (
        eks(network={"services": "100.64.0.0/16"}),
        ("eks.network.public", "platform.network.services"),
    ),
    "EKS open to all": (
        eks(authorized_networks=["0.0.0.0/0"]),
        ("cloud.authorized_networks.open_to_internet", "platform.authorized_networks.0"),
    ),
    "EKS open to all in two halves": (
        eks(authorized_networks=["0.0.0.0/1", "128.0.0.0/1"]),
        ("cloud.authorized_networks.open_to_internet", "platform.authorized_networks.0"),
    ),
    "EKS open to a private range": (
        eks(authorized_networks=["10.1.0.0/16"]),
        ("eks.authorized_networks.private", "platform.authorized_networks.0"),
    ),
    "admin twice": (
        eks(admins=["arn:aws:iam::123456789012:role/a"] * 2),
        ("eks.admins.duplicate", "platform.admins.1"),
    ),
    "unknown instance": (group(machine_type="p5.large"), ("eks.pool.machine_unknown", "platform.pools.0.machine_type")),
    "EFA in two zones": (
        group(**P5, zones=["us-west-2a", "us-west-2b"]),
        ("eks.pool.efa_zones", "platform.pools.0.zones"),
    ),
    "block of a type without": (
        group(machine_type="g5.48xlarge", capacity=BLOCK, zones="us-west-2a"),
        ("eks.pool.capacity_block_machine", "platform.pools.0.capacity"),
    ),
    "placement in a block": (
        group(**P5, capacity=BLOCK, zones="us-west-2a", placement_group=True),
        ("eks.pool.placement_capacity_block", "platform.pools.0.placement_group"),
    ),
    "new placement group for a reservation": (
        group(**P5, capacity=RESERVATION, zones="us-west-2a", placement_group=True),
        ("eks.pool.placement_reservation", "platform.pools.0.placement_group"),
    ),
    "reservation without zone": (
        group(**P5, capacity=RESERVATION),
        ("eks.pool.reservation_without_zone", "platform.pools.0.zones"),
    ),
    "GPUs for the system": (
        eks(system_pool={"machine_type": "g5.xlarge"}),
        ("eks.system_pool.has_gpus", "platform.system_pool.machine_type"),
    ),
    "spread out placement": (
        group(machine_type="g5.xlarge", placement_group=True, zones=["us-west-2a", "us-west-2b"]),
        ("eks.pool.placement_zones", "platform.pools.0.zones"),
    ),
    "EKS of the far future": (
        eks(kubernetes_version="1.99"),
        ("eks.kubernetes_version.not_yet_offered", "platform.kubernetes_version"),
    ),
    "zones that differ by account": (eks(region="us-west-1"), ("eks.zones.by_account", "platform.zones")),
    "P5 where there is none": (
        eks(region="sa-east-1", pools=[{"name": "a", "machine_type": "p5.48xlarge"}]),
        ("eks.pool.machine_not_in_region", "platform.pools.0.machine_type"),
    ),
    "region that AWS has not": (eks(region="us-west-9"), ("eks.region.unknown", "platform.region")),
    "small disk on AWS": (group(disk_size_gb=10), ("settings.greater_than_equal", "platform.pools.0.disk_size_gb")),
    "region of Google": (eks(region="us-central1"), ("settings.aws_region", "platform.region")),
    "account in a number": (eks(account="123"), ("settings.aws_account", "platform.account")),
    "account without quotes": (eks(account=123456789012), ("settings.string_type", "platform.account")),
    "EKS name of 101": (eks(name="a" * 101), ("settings.eks_name", "platform.name")),
    "old EKS": (
        eks(kubernetes_version="1.23"),
        ("eks.kubernetes_version.no_longer_offered", "platform.kubernetes_version"),
    ),
    "EKS past standard support": (
        eks(kubernetes_version="1.33"),
        ("eks.kubernetes_version.standard_support_ended", "platform.kubernetes_version"),
    ),
    "zones of another region": (eks(zones=["us-east-1a", "us-west-2b"]), ("eks.zones.other_region", "platform.zones")),
    "services in a range for benchmarks": (
        eks(network={"services": "198.18.0.0/16"}),
        ("eks.network.public", "platform.network.services"),
    ),
    "EFA without egress to the fabric": (
        group(**P5) | {"kubernetes_version": "1.32", "check_availability": False},
        ("eks.pool.efa_version", "platform.pools.0.efa"),
    ),
    "VPC of public addresses": (eks(network={"vpc": "8.8.0.0/16"}), ("eks.network.public", "platform.network.vpc")),
    "small VPC": (eks(network={"vpc": "10.0.0.0/24"}), ("eks.network.vpc_size", "platform.network.vpc")),
    "admin that is none": (eks(admins=["me"]), ("settings.aws_principal", "platform.admins.0")),
    "bucket with S3's own ending": (
        eks(bucket={"name": "abc-s3alias"}),
        ("eks.bucket.name_reserved", "platform.bucket.name"),
    ),
    "name too long for the bucket's": (eks(name="a" * 60), ("eks.name.too_long_for_bucket", "platform.name")),
    "more nodes than addresses": (
        group(machine_type="c7i.large", nodes=15_000) | {"network": {"vpc": "10.0.0.0/18"}},
        ("eks.network.too_few_addresses", "platform.network.vpc"),
    ),
    "more nodes than their spare addresses leave": (
        group(machine_type="p5.48xlarge", nodes=41, zones="us-west-2a") | {"network": {"vpc": "10.0.0.0/18"}},
        ("eks.network.too_few_addresses", "platform.network.vpc"),
    ),
    "version without quotes": (eks(kubernetes_version=1.36), ("settings.string_type", "platform.kubernetes_version")),
    "EFA on a type without": (
        group(machine_type="g5.xlarge", efa=True),
        ("eks.pool.efa_machine", "platform.pools.0.efa"),
    ),
    "zone outside the VPC": (
        group(**P5, zones="us-west-2d"),
        ("eks.pool.zones_outside_platform", "platform.pools.0.zones"),
    ),
    "flex-start on AWS": (group(**P5, capacity="flex-start"), ("settings.eks_capacity", "platform.pools.0.capacity")),
    "two capacities on AWS": (
        group(capacity=["spot", "on-demand"]),
        ("settings.several_capacities", "platform.pools.0.capacity"),
    ),
    "S3 bucket with dots": (eks(bucket={"name": "a.example.com"}), ("settings.s3_bucket_name", "platform.bucket.name")),
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    platform, parts = CASES[name]
    assert_refused_in_one_line(({"platform": platform, "jobs": []}, ("trainyard:platform.", *parts)))


@pytest.mark.parametrize("name", CODES)
def test_settings_with_one_problem_are_refused_with_its_code(name: str) -> None:
    values, problem = CODES[name]
    assert refused({"platform": values, "jobs": []}) == [problem]


RIGHT: dict[str, dict[str, Any]] = {
    "EKS": eks(),
    "a capacity block": group(**P5, capacity=BLOCK, zones="us-west-2a"),
    "a long name with a bucket of its own": eks(name="a" * 60, bucket={"name": "checkpoints-of-ours"}),
    "an image that is there": eks(image={"prebuilt": f"a/b@sha256:{'0' * 64}"}),
    "a version that we do not know of on AWS": eks(kubernetes_version="1.40", check_availability=False),
    "a region without zone b": eks(region="ap-northeast-1"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_accepted(name: str) -> None:
    assert parse({"platform": RIGHT[name], "jobs": []}).platform.kind == "eks"
