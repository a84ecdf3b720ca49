"""Prices: each has a source and a day, every machine is priced or named as unpriced, and nothing is free in silence."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from infra.config import PlatformConfig
from infra.cost import bill, over_budget
from infra.cost.prices import PRICES
from infra.hardware.ec2 import EC2_MACHINES
from infra.hardware.gce import GCE_MACHINES
from infra.hardware.gpus import GPUS
from infra.hardware.tpus import GENERATIONS
from stack_config import parse

A2_ON_DEMAND = 12 * 0.031611 + 85 * 0.004237


def platform(kind: str, *pools: dict[str, Any], **changes: Any) -> PlatformConfig:
    named = [{"name": f"pool-{index}", "nodes": 1, **pool} for index, pool in enumerate(pools)]
    return parse({"platform": {"kind": kind, "pools": named, **changes}, "jobs": []}).platform


def tpu(accelerator: str, **changes: Any) -> PlatformConfig:
    pool = {"name": "tpu", "accelerator": accelerator, "check_zones": False, **changes}
    return parse({"platform": {"kind": "gke", "pools": [pool], "zone": "us-central1-a"}, "jobs": []}).platform


def test_every_price_has_a_source_and_a_day() -> None:
    for price in PRICES:
        assert price.source.startswith("https://")
        assert price.day <= date(2026, 11, 21)
        assert price.usd > 0
        assert price.usd != 700, "the catalogue's number for no price"


def test_no_price_is_given_twice() -> None:
    assert len({(price.item, price.region) for price in PRICES}) == len(PRICES)


@pytest.mark.parametrize("name", EC2_MACHINES)
def test_every_instance_type_is_priced_or_named(name: str) -> None:
    lines = [line for line in bill(platform("eks", {"machine_type": name})).lines if line.part == "pool-0"]
    assert [line.item.name for line in lines] == [name, "disk gp3 GB"]
    found = bill(platform("eks", {"machine_type": name}))
    assert all(line.price or any(line.item.name in each for each in found.unpriced) for line in lines)


@pytest.mark.parametrize("name", [each.name for each in GCE_MACHINES.values() if not each.tpu_chips])
def test_every_machine_type_is_priced_or_named(name: str) -> None:
    found = bill(platform("gke", {"machine_type": name, "check_zones": False}))
    lines = [line for line in found.lines if line.part == "pool-0"]
    machine = GCE_MACHINES[name]
    assert sum(line.quantity for line in lines if line.item.name.endswith(" vCPU")) == machine.vcpus
    assert sum(line.quantity for line in lines if line.item.name == machine.gpu) == machine.gpus
    assert all(line.price or any(line.item.name in each for each in found.unpriced) for line in lines)


@pytest.mark.parametrize(
    "accelerator", [f"{name}-8" for name in GPUS if GPUS[name].attachment] + ["v4-8", "v5litepod-8", "v5p-8", "v6e-8"]
)
def test_accelerators_are_lines_of_their_own(accelerator: str) -> None:
    name = accelerator.rpartition("-")[0]
    if name in GPUS:
        found = bill(
            platform("gke", {"machine_type": "n1-standard-8", "accelerator": name, "accelerators_per_node": 2})
        )
        assert [line.quantity for line in found.lines if line.item.name == name] == [2]
    else:
        found = bill(tpu(accelerator))
        (line,) = [line for line in found.lines if line.item.name.startswith("TPU ")]
        assert line.item.name.split()[1] in GENERATIONS


def test_chips_of_every_slice_are_counted() -> None:
    found = bill(tpu("v6e-16", slices=2))
    assert found.by_part()["tpu"].amount == pytest.approx(32 * 2.7)
    assert any("hyperdisk-balanced" in each for each in found.unpriced)


def test_spot_and_on_demand() -> None:
    found = bill(tpu("v6e-16", capacity="spot"))
    assert found.by_part()["tpu"].amount == pytest.approx(16 * 0.54421)
    assert found.by_part(spot=False)["tpu"].amount == pytest.approx(16 * 2.7)
    assert found.by_part(spot=True)["cluster"] == found.by_part(spot=False)["cluster"]


def test_the_band_is_wider_elsewhere_and_for_spot() -> None:
    def width(**changes: Any) -> float:
        money = bill(platform("gke", {"machine_type": "e2-standard-4", **changes.pop("pool", {})}, **changes))
        found = money.by_part()["pool-0"]
        return (found.high - found.low) / found.amount

    here = width()
    assert here == pytest.approx(0.1, abs=0.01)
    assert width(zone="europe-west4-a") == pytest.approx(0.7, abs=0.01)
    assert here < width(pool={"capacity": "spot"}) <= 1


def test_an_unpriced_part_is_named_and_not_free() -> None:
    found = bill(platform("gke", {"machine_type": "a2-highgpu-1g", "check_zones": False}))
    assert found.by_part()["pool-0"].amount == pytest.approx(A2_ON_DEMAND + 100 * 34 / 200 / 730, rel=1e-3)
    assert "pool-0: 1 x nvidia-tesla-a100" in found.unpriced


def test_what_has_no_spot_price_is_not_shown_as_cheap() -> None:
    found = bill(platform("gke", {"machine_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4"}))
    assert "pool-0" in found.incomplete(spot=True)
    complete = bill(platform("gke", {"machine_type": "e2-standard-4"}))
    assert "pool-0" not in complete.incomplete(spot=True)


def test_old_prices_are_said_to_be_old() -> None:
    found = bill(platform("gke", {"machine_type": "e2-standard-4"}))
    assert found.warnings(date(2026, 11, 21)) == ()
    later = date(2026, 11, 21) + timedelta(days=366)
    assert any("e2 vCPU" in warning and "https://" in warning for warning in found.warnings(later))


def test_budget() -> None:
    priced = bill(tpu("v6e-8"))
    assert over_budget(priced, None) is None
    assert "more than `budget: 1`" in (over_budget(priced, 1) or "")
    assert "without a price" in (over_budget(priced, 1000) or ""), "a price that is not known may be any"


def test_a_cluster_on_this_machine_costs_nothing() -> None:
    local = parse({"platform": {"kind": "local", "nodes": 1}, "jobs": []}).platform
    assert bill(local).lines == ()
