"""The prices that Trainyard knows, each with its region, its source and its day. What is not here has no price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from infra.cost.price_tables import AWS_FAMILIES, AWS_ROWS, GCP_ROWS, Row
from infra.hardware.ec2 import EC2_MACHINES


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that has a price."""

    cloud: str
    """`gcp` or `aws`."""
    name: str
    """What it is, its unit in it where that is not one piece."""
    spot: bool = False
    """Whether it is spot capacity."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What an item costs somewhere."""

    item: Item
    """The item."""
    region: str
    """Region that the price is of; `global` where it is the same in all."""
    usd: float
    """US dollars an hour for one unit."""
    source: str
    """Where the price was read."""
    day: date
    """Day that it is of: the source's own where it says one, else that on which it was read."""


def _prices() -> Iterator[Price]:
    for cloud, rows in (("gcp", GCP_ROWS), ("aws", (*AWS_ROWS, *_cpu_instances()))):
        for name, region, on_demand, spot, source in rows:
            for usd, as_spot in ((on_demand, False), (spot, True)):
                if usd is not None:
                    item = Item(cloud=cloud, name=name, spot=as_spot)
                    yield Price(item=item, region=region, usd=usd, source=source.url, day=source.day)


def _cpu_instances() -> Iterator[Row]:
    """An instance type without GPUs costs the same a vCPU in every size of its family."""
    for machine in EC2_MACHINES.values():
        if machine.family in AWS_FAMILIES:
            usd, source = AWS_FAMILIES[machine.family]
            yield machine.name, "us-east-1", usd * machine.vcpus, None, source


PRICES: tuple[Price, ...] = tuple(_prices())
"""Every price."""
