"""Cost estimates: prices with sources, a price or an explicit exception for every machine, ranges and budgets."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from infra.cost import PRICES, CostEstimate, over_budget
from infra.hardware.ec2 import EC2_MACHINES
from infra.hardware.gce import GCE_MACHINES, gce_family
from infra.hardware.gpus import GPUS
from infra.hardware.tpus import GENERATIONS
from stack.config import PlatformConfig, cloud_of, parse
from stack.placement import pools_of_jobs
from stack.run_record import run_records


def cost_estimate(platform: PlatformConfig) -> CostEstimate:
    """Return the cost estimate of a platform."""
    return cloud_of(platform).cost_estimate()


def platform(kind: str, *pools: dict[str, Any], **changes: Any) -> PlatformConfig:
    """Return a cloud platform with these pools of one node."""
    named = [{"name": f"pool-{index}", "nodes": 1, **pool} for index, pool in enumerate(pools)]
    project = {"project": "some-project"} if kind == "gke" else {}
    return parse({"platform": {"kind": kind, **project, "pools": named, **changes}, "jobs": []}).platform


def tpu(accelerator: str, *, zone: str = "us-central1-a", **changes: Any) -> PlatformConfig:
    """Return a GKE platform with one pool of TPUs, `tpu`."""
    pool = {"name": "tpu", "accelerator": accelerator, "check_zones": False, **changes}
    gke = {"kind": "gke", "project": "some-project", "pools": [pool], "zone": zone}
    return parse({"platform": gke, "jobs": []}).platform


def test_prices_have_source_and_date() -> None:
    for price in PRICES:
        assert price.source.startswith("https://")
        assert price.day <= date.today()
        assert price.usd > 0
        assert price.usd != 700, "the price catalogue shows 700 for a missing price"


def test_prices_are_unique_by_item_and_region() -> None:
    assert len({(price.item, price.region) for price in PRICES}) == len(PRICES)


UNPRICED = {"p5e.48xlarge", "tpu7x-standard-1t", "tpu7x-standard-4t"}
"""Machine types without a published price. AWS sells the first only in capacity blocks; the others are too new."""
UNPRICED_SPOT = {"g4"}
"""Families of GCE without a published spot price."""
NO_PRICE = "add a price of this name to infra/cost.py; if no page has one, add the machine type to UNPRICED"
NO_SPOT_PRICE = "add a spot price of this name to infra/cost.py; if no page has one, add the family to UNPRICED_SPOT"
DISK_USD_PER_HOUR = 100 * 0.08 / 730
"""Price of a node's boot disk in US dollars an hour. Its 100 GB cost 0.08 dollars each in a month of 730 hours."""


@pytest.mark.parametrize("name", EC2_MACHINES)
def test_cost_estimate_prices_every_ec2_type(name: str) -> None:
    found = cost_estimate(platform("eks", {"machine_type": name}))
    lines = [line for line in found.lines if line.part == "pool-0"]
    assert [line.item.name for line in lines] == [name, "disk gp3 GB"]
    assert found.unpriced == ((f"pool-0: 1 x {name}",) if name in UNPRICED else ()), NO_PRICE


@pytest.mark.parametrize("name", [each.name for each in GCE_MACHINES.values() if not each.tpu_chips])
def test_cost_estimate_prices_every_gce_type(name: str) -> None:
    machine = GCE_MACHINES[name]
    capacity = "reservation:r" if name in gce_family(machine).not_on_demand else "on-demand"
    found = cost_estimate(platform("gke", {"machine_type": name, "check_zones": False, "capacity": capacity}))
    lines = [line for line in found.lines if line.part == "pool-0"]
    cpus = sum(line.quantity for line in lines if " vCPU" in line.item.name)
    assert cpus == (0 if gce_family(machine).pricing == "gpu" else machine.vcpus)
    assert (
        sum(line.quantity for line in lines if machine.gpu and line.item.name.startswith(machine.gpu)) == machine.gpus
    )
    if name in UNPRICED:
        assert found.unpriced, f"{name} has a price; remove it from UNPRICED"
        return
    assert found.unpriced == (), NO_PRICE
    as_spot = cost_estimate(platform("gke", {"machine_type": name, "check_zones": False, "capacity": "spot"}))
    if machine.family in UNPRICED_SPOT:
        assert as_spot.unpriced, f"{machine.family} has a spot price; remove it from UNPRICED_SPOT"
        return
    assert as_spot.unpriced == (), NO_SPOT_PRICE
    assert as_spot.by_part()["pool-0"].amount < found.by_part()["pool-0"].amount


@pytest.mark.parametrize("generation", GENERATIONS)
def test_cost_estimate_prices_every_tpu(generation: str) -> None:
    for chips, name in GENERATIONS[generation].machine_types.items():
        axes = {1: "1x1", 4: "2x2", 8: "2x4"}[chips]
        topology = axes if GENERATIONS[generation].dimensions == 2 else f"{axes}x1"
        found = cost_estimate(tpu(generation, topology=topology))
        assert bool(found.unpriced) == (name in UNPRICED), NO_PRICE


@pytest.mark.parametrize(
    ("kind", "disk", "machine"),
    [
        ("gke", "pd-standard", "n1-standard-8"),
        ("gke", "pd-balanced", "n1-standard-8"),
        ("gke", "pd-ssd", "n1-standard-8"),
        ("gke", "hyperdisk-balanced", "c4-standard-4"),
        ("eks", "gp3", "g5.xlarge"),
        ("eks", "io2", "g5.xlarge"),
    ],
)
def test_cost_estimate_prices_every_disk(kind: str, disk: str, machine: str) -> None:
    pool = {"machine_type": machine, "disk_type": disk}
    assert cost_estimate(platform(kind, pool)).unpriced == ()


def test_cost_estimate_of_io2_disk_includes_its_operations() -> None:
    pool = {"machine_type": "g5.xlarge", "nodes": 2, "disk_type": "io2"}
    disks = {
        line.item.name: line.cost(spot=False)
        for line in cost_estimate(platform("eks", pool)).lines
        if line.part == "pool-0" and line.item.name.startswith("disk")
    }
    monthly = {name: cost.amount * 730 for name, cost in disks.items() if cost}
    assert monthly == pytest.approx({"disk io2 GB": 2 * 100 * 0.125, "disk io2 IOPS": 2 * 3000 * 0.065})


@pytest.mark.parametrize(("nat_per_zone", "gateways"), [(False, 1), (True, 3)])
def test_cost_estimate_of_eks_network_counts_gateways_and_endpoints(nat_per_zone: bool, gateways: int) -> None:
    found = cost_estimate(platform("eks", network={"nat_per_zone": nat_per_zone}))
    assert {line.item.name: line.quantity for line in found.lines if line.part == "cluster"} == {
        "EKS control plane": 1,
        "NAT gateway": gateways,
        "public IPv4 address": gateways,
        "interface endpoint in a zone": 2 * 3,
    }
    assert found.by_part()["cluster"].amount == pytest.approx(0.10 + gateways * (0.045 + 0.005) + 6 * 0.01)


def test_cost_estimate_equals_published_prices_of_machines() -> None:
    # Google publishes the total price of these machines, which must equal the sum of their parts.
    listed = {
        "n1-standard-4": 0.19,
        "g4-standard-384": 36.0006,
        "c2-standard-60": 3.1321,
        "n2-standard-8": 0.3885,
        "a2-highgpu-8g": 29.38708,
    }
    for name, usd in listed.items():
        found = cost_estimate(platform("gke", {"machine_type": name, "check_zones": False, "disk_size_gb": 100}))
        parts = [
            line.cost(spot=False) for line in found.lines if line.part == "pool-0" and "disk" not in line.item.name
        ]
        assert sum(each.amount for each in parts if each) == pytest.approx(usd, rel=2e-3)


@pytest.mark.parametrize("name", [name for name in GPUS if GPUS[name].attachment])
def test_cost_estimate_lists_attached_gpus(name: str) -> None:
    pool = {"machine_type": "n1-standard-8", "accelerator": name, "accelerators_per_node": 2}
    lines = cost_estimate(platform("gke", pool)).lines
    assert [line.quantity for line in lines if line.item.name == name] == [2]


def test_cost_estimate_counts_chips_of_all_slices() -> None:
    found = cost_estimate(tpu("v6e-16", slices=2))
    assert found.by_part()["tpu"].amount == pytest.approx(32 * 2.7 + 8 * DISK_USD_PER_HOUR)


def test_cost_estimate_of_spot_pool_uses_spot_price() -> None:
    found = cost_estimate(tpu("v6e-16", capacity="spot"))
    assert found.by_part()["tpu"].amount == pytest.approx(16 * 0.54421 + 4 * DISK_USD_PER_HOUR)
    assert found.by_part(spot=False)["tpu"].amount == pytest.approx(16 * 2.7 + 4 * DISK_USD_PER_HOUR)
    assert found.by_part(spot=True)["cluster"] == found.by_part(spot=False)["cluster"]


@pytest.mark.parametrize("capacity", [["spot", "on-demand"], ["spot", "flex-start"], ["reservation:r", "spot"]])
def test_cost_estimate_of_fallback_order_uses_price_of_most_expensive_model(capacity: list[str]) -> None:
    pool = {"machine_type": "a3-highgpu-8g", "check_zones": False}
    found = cost_estimate(platform("gke", {**pool, "capacity": capacity}))
    assert found.total == cost_estimate(platform("gke", pool)).total


@pytest.mark.parametrize(
    ("version", "channel", "usd"), [("1.32", "EXTENDED", 0.6), (None, "EXTENDED", 0.1), ("1.36", "REGULAR", 0.1)]
)
def test_cost_estimate_includes_fee_of_extended_support(version: str | None, channel: str, usd: float) -> None:
    changes = {"kubernetes_version": version} if version else {}
    found = cost_estimate(platform("gke", {"machine_type": "e2-standard-4"}, release_channel=channel, **changes))
    fees = [line.cost(spot=False) for line in found.lines if line.item.name.startswith("GKE")]
    assert sum(each.amount for each in fees if each) == pytest.approx(usd)


def test_cost_estimate_of_another_region_uses_its_prices() -> None:
    def rate(**changes: Any) -> float:
        return cost_estimate(tpu("v6e-16", **changes)).by_part()["tpu"].amount

    assert rate(zone="europe-west4-a") - rate() == pytest.approx(16 * (2.97 - 2.7))
    assert rate(zone="us-east5-a", capacity="spot") - rate(capacity="spot") == pytest.approx(16 * (1.215 - 0.54421))


def test_cost_estimate_range_is_wider_in_other_regions_and_for_spot() -> None:
    def width(**changes: Any) -> float:
        estimate = cost_estimate(
            platform("gke", {"machine_type": "e2-standard-4", **changes.pop("pool", {})}, **changes)
        )
        found = estimate.by_part()["pool-0"]
        return (found.high - found.low) / found.amount

    default_region = width()
    assert default_region == pytest.approx(0.1, abs=0.01)
    assert width(zone="europe-west4-a") == pytest.approx(0.7, abs=0.01)
    assert default_region < width(pool={"capacity": "spot"}) <= 1


def test_cost_estimate_names_unpriced_machines() -> None:
    found = cost_estimate(platform("eks", {"machine_type": "p5e.48xlarge"}))
    assert found.by_part()["pool-0"].amount == pytest.approx(DISK_USD_PER_HOUR)
    assert found.unpriced == ("pool-0: 1 x p5e.48xlarge",)
    assert "pool-0" in found.incomplete()


def test_cost_estimate_without_spot_price_is_incomplete() -> None:
    found = cost_estimate(platform("eks", {"machine_type": "g4dn.12xlarge"}))
    assert "pool-0" in found.incomplete(spot=True)
    assert "pool-0" not in found.incomplete()


def test_cost_estimate_warns_of_old_prices() -> None:
    found = cost_estimate(platform("gke", {"machine_type": "e2-standard-4"}))
    assert found.warnings(date(2026, 11, 21)) == ()
    later = date(2026, 11, 21) + timedelta(days=366)
    assert any("e2 vCPU" in warning and "https://" in warning for warning in found.warnings(later))


def test_over_budget_rejects_higher_and_unknown_prices() -> None:
    priced = cost_estimate(tpu("v6e-8"))
    assert over_budget(priced, None) is None
    assert over_budget(priced, 1) is not None
    assert over_budget(priced, 1000) is None
    unpriced = cost_estimate(platform("eks", {"machine_type": "p5e.48xlarge"}))
    assert over_budget(unpriced, 1000) is not None, "an unknown price may exceed any budget"


def test_cost_estimate_of_local_cluster_is_empty() -> None:
    local = parse({"platform": {"kind": "local", "nodes": 1}, "jobs": []}).platform
    assert cost_estimate(local).lines == ()


def test_run_record_of_a_job_has_the_name_and_price_of_its_pool() -> None:
    pools = [
        {"name": "spot", "machine_type": "g2-standard-8", "nodes": 1, "capacity": "spot"},
        {"name": "large", "machine_type": "g2-standard-96", "nodes": 2},
        {"name": "small", "machine_type": "g2-standard-8", "nodes": 2},
    ]
    gke = {"kind": "gke", "project": "some-project", "pools": pools}
    job = {"name": "a", "recipe": "digits", "hosts": 2, "accelerator": "nvidia-l4", "accelerators_per_host": 1}
    config = parse({"platform": gke, "jobs": [job]})
    assigned = pools_of_jobs(config.cloud, config.jobs)["a"]
    assert assigned
    record, cost = run_records(config)["a"], config.cloud.cost_estimate().by_part()[assigned].amount
    gpus = next(pool.gpus for pool in config.cloud.pool_nodes() if pool.name == assigned)
    assert record["pools"] == [assigned]
    assert record["usd_per_hour"] == round(cost / gpus, 4)
