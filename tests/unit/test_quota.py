"""Quota that a platform needs, by the names that the clouds use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from infra.hardware.ec2 import EC2_MACHINES
from infra.hardware.gce import GCE_MACHINES, gce_family
from stack.config import parse


def needed_quota(platform: dict[str, Any]) -> dict[str, int]:
    """Return the amount of each quota that a platform needs, by its name."""
    return {each.name: each.amount for each in parse({"platform": platform, "jobs": []}).cloud.quota()}


def gke(*pools: dict[str, Any], **changes: Any) -> dict[str, int]:
    """Return the quota that the pools of a GKE platform need, without its system pool."""
    named = [{"name": f"pool-{index}", **pool} for index, pool in enumerate(pools)]
    found = needed_quota({"kind": "gke", "project": "some-project", "pools": named, **changes})
    system = needed_quota({"kind": "gke", "project": "some-project", "pools": [], **changes})
    return {name: amount - system.get(name, 0) for name, amount in found.items() if amount != system.get(name)}


def test_quota_of_default_gke_stack_counts_both_pools() -> None:
    assert needed_quota({"kind": "gke", "project": "some-project"}) == {
        "CPUS": 3 * 4 + 2 * 4,
        "GPUS_ALL_REGIONS": 4,
        "IN_USE_ADDRESSES": 1,
        "NVIDIA_T4_GPUS": 4,
        "SSD_TOTAL_GB": 3 * 100 + 2 * 100,
    }


def test_quota_of_spot_pool_is_preemptible() -> None:
    found = gke({"machine_type": "a2-highgpu-8g", "capacity": "spot"})
    assert found["PREEMPTIBLE_NVIDIA_A100_GPUS"] == 16
    assert "GPUS_ALL_REGIONS" not in found


def test_quota_of_newer_gpus_is_per_family() -> None:
    assert gke({"machine_type": "a3-megagpu-8g"})["GPUS_PER_GPU_FAMILY (gpu_family: NVIDIA_H100_MEGA)"] == 16


def test_quota_of_tpu_slices_counts_chips() -> None:
    found = gke({"accelerator": "v4-32", "slices": 2, "capacity": "spot"}, zone="us-central2-b")
    assert found["PREEMPTIBLE_TPUS_PER_TPU_FAMILY (tpu_family: CT4P)"] == 32


def test_quota_of_fallback_order_counts_each_capacity_type() -> None:
    zones = ["us-east5-a", "us-east5-b"]
    found = gke({"accelerator": "v6e-16", "capacity": ["on-demand", "spot"], "zones": zones}, zone=zones[0])
    assert found["TPUS_PER_TPU_FAMILY (tpu_family: CT6E)"] == 16
    assert found["PREEMPTIBLE_TPUS_PER_TPU_FAMILY (tpu_family: CT6E)"] == 16


def test_quota_of_eks_stack_counts_vcpus_except_in_capacity_blocks() -> None:
    assert needed_quota({"kind": "eks"}) == {
        "L-1216C47A Running On-Demand Standard instances (vCPUs)": 4,
        "L-DB2E81BA Running On-Demand G and VT instances (vCPUs)": 96,
    }
    pool = {"name": "a", "machine_type": "p5.48xlarge", "capacity": "spot"}
    assert needed_quota({"kind": "eks", "pools": [pool]})["L-C4BD4855 All P5 Spot Instance Requests (vCPUs)"] == 384
    block = {**pool, "capacity": "capacity-block:cr-0123456789abcdef0", "zones": "us-west-2a"}
    # A capacity block needs no quota, so the only quota is that of the system pool.
    assert len(needed_quota({"kind": "eks", "pools": [block]})) == 1


def quota_left_of_eks(*usage: tuple[str, float]) -> set[int]:
    """Return the remaining vCPUs of each quota. Each quota is 192 vCPUs, and CloudWatch returns this usage by time."""

    def run_json(_aws: str, service: str, *words: str) -> Any:
        if service == "service-quotas":
            dimensions = {"Service": "EC2", "Type": "Resource", "Resource": "vCPU", "Class": "G/OnDemand"}
            metric = {"MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount", "MetricDimensions": dimensions}
            return {"Quota": {"Value": 192.0, "UsageMetric": metric}}
        start, end = (
            datetime.fromisoformat(word.partition("=")[2]) for word in words if word.startswith(("--start", "--end"))
        )
        assert end - start == timedelta(minutes=15)
        return {"Datapoints": [{"Timestamp": f"2026-11-21T{time}:00+00:00", "Maximum": used} for time, used in usage]}

    cloud = parse({"platform": {"kind": "eks"}, "jobs": []}).cloud.provisioned
    assert cloud is not None
    return set(cloud.remaining_quota(run_json).values())


def test_quota_left_subtracts_only_the_newest_usage() -> None:
    assert quota_left_of_eks(("10:00", 192.0), ("10:50", 0.0)) == {192}
    assert quota_left_of_eks(("10:50", 96.0), ("10:00", 0.0)) == {96}
    assert quota_left_of_eks() == {192}


@pytest.mark.parametrize("name", [name for name, machine in GCE_MACHINES.items() if not machine.tpu_chips])
def test_quota_exists_for_every_gce_type(name: str) -> None:
    capacity = "spot" if name in gce_family(GCE_MACHINES[name]).not_on_demand else "on-demand"
    pool = {"machine_type": name, "check_zones": False, "nodes": 1, "capacity": capacity}
    assert gke(pool)


@pytest.mark.parametrize("name", EC2_MACHINES)
def test_quota_exists_for_every_ec2_type(name: str) -> None:
    assert needed_quota({"kind": "eks", "pools": [{"name": "a", "machine_type": name}]})


def test_quota_of_local_platform_is_empty() -> None:
    assert needed_quota({"kind": "local"}) == {}
