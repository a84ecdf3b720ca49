"""Wrong settings of EKS are refused when they are read: key, value, what is allowed, what to do."""

from __future__ import annotations

from typing import Any

import pytest

from infra.hardware.eks_versions import DEFAULT_EKS_VERSION
from stack.config import parse
from tests.problems import refused
from tests.unit.cloud_settings import BLOCK, P5, RESERVATION, eks, group
from tests.unit.refused import assert_refused_in_one_line

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "EKS of the far future": (eks(kubernetes_version="1.99"), ("kubernetes_version", "not yet", DEFAULT_EKS_VERSION)),
    "zone that AWS has not": (
        eks(zones=["us-west-2a", "us-west-2z"]),
        ("platform.zones", "us-west-2 has no zone us-west-2z", "us-west-2a"),
    ),
    "zones that differ by account": (eks(region="us-west-1"), ("platform.zones", "write two of yours", "us-west-1c")),
    "P5 where there is none": (
        eks(region="sa-east-1", pools=[{"name": "a", "machine_type": "p5.48xlarge"}]),
        ("pools[0].machine_type", "sa-east-1 has no p5", "us-east-1"),
    ),
    "region that AWS has not": (eks(region="us-west-9"), ("platform.region", "us-west-1, us-west-2")),
    "small disk on AWS": (group(disk_size_gb=10), ("pools[0].disk_size_gb = 10", "integer from 20")),
    "region of Google": (eks(region="us-central1"), ("platform.region", "us-west-2")),
    "account in a number": (eks(account="123"), ("platform.account", "12 digits")),
    "account without quotes": (eks(account=123456789012), ("must be a string", "`account: '123456789012'`")),
    "days in quotes": (eks(log_days="30"), ('log_days = "30"', "180, 365, without quotes: 30")),
    "EKS name of 101": (eks(name="a" * 101), ("platform.name", "1 to 100")),
    "old EKS": (eks(kubernetes_version="1.23"), ("kubernetes_version", "no longer offered")),
    "EKS past standard support": (
        eks(kubernetes_version="1.33"),
        ("kubernetes_version", "left standard support on 2026-07-29", "0.60 USD an hour", DEFAULT_EKS_VERSION),
    ),
    "zones of another region": (eks(zones=["us-east-1a", "us-west-2b"]), ("platform.zones", "us-east-1a is not in")),
    "services in a range for benchmarks": (
        eks(network={"services": "198.18.0.0/16"}),
        ("network.services", "is not for private use", "10.0.0.0/8"),
    ),
    "EFA without egress to the fabric": (
        group(**P5) | {"kubernetes_version": "1.32", "check_availability": False},
        ("pools[0].efa", "needs Kubernetes 1.33", "`efa: false`"),
    ),
    "VPC of public addresses": (
        eks(network={"vpc": "8.8.0.0/16"}),
        ("network.vpc", "is not for private use", "100.64.0.0/10"),
    ),
    "small VPC": (eks(network={"vpc": "10.0.0.0/24"}), ("network.vpc", "/16, /17 or /18")),
    "admin that is none": (eks(admins=["me"]), ("platform.admins[0]", "ARN")),
    "bucket with S3's own ending": (eks(bucket={"name": "abc-s3alias"}), ("bucket.name", "that S3 reserves")),
    "name too long for the bucket's": (eks(name="a" * 60), ("platform.name", "at most 48", "`bucket.name`")),
    "more nodes than addresses": (
        group(machine_type="c7i.large", nodes=15_000) | {"network": {"vpc": "10.0.0.0/18"}},
        ("network.vpc", "leaves 4091 addresses in each zone", "the 5001 nodes in us-west-2a need 100020"),
    ),
    "more nodes than their spare addresses leave": (
        group(machine_type="p5.48xlarge", nodes=41, zones="us-west-2a") | {"network": {"vpc": "10.0.0.0/18"}},
        ("network.vpc", "leaves 4091 addresses in each zone", "need 4120"),
    ),
    "version without quotes": (
        eks(kubernetes_version=1.36),
        ("kubernetes_version = 1.36", "`kubernetes_version: '1.36'`"),
    ),
    "EFA on a type without": (group(machine_type="g5.xlarge", efa=True), ("efa", "g5.xlarge has no EFA", "g5.8xlarge")),
    "zone outside the VPC": (group(**P5, zones="us-west-2d"), ("zones", "us-west-2d is not a zone of the platform")),
    "flex-start on AWS": (group(**P5, capacity="flex-start"), ("capacity", "on-demand, spot, 'reservation:cr-")),
    "two capacities on AWS": (
        group(capacity=["spot", "on-demand"]),
        ("pools[0].capacity", "must be one of", "`capacity: spot`, and add a pool"),
    ),
    "S3 bucket with dots": (eks(bucket={"name": "a.example.com"}), ("bucket.name", "without dots")),
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
        ("cloud.authorized_networks.open_to_all", "platform.authorized_networks.0"),
    ),
    "EKS open to all in two halves": (
        eks(authorized_networks=["0.0.0.0/1", "128.0.0.0/1"]),
        ("cloud.authorized_networks.open_to_all", "platform.authorized_networks.0"),
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
