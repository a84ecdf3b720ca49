"""Price table: each price has a region, a source and a date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from infra.cost.price_tables import AWS_FAMILIES, AWS_ROWS, GCP_ROWS, Row
from infra.hardware.ec2 import EC2_MACHINES


@dataclass(frozen=True, kw_only=True)
class Item:
    """Item with a price."""

    cloud: str
    """`gcp` or `aws`."""
    name: str
    """Name, which includes the unit if the unit is not one piece."""
    spot: bool = False
    """True for spot capacity."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """Price of an item in a region."""

    item: Item
    """Item."""
    region: str
    """Region of the price, or `global` if it is the same in all regions."""
    usd: float
    """US dollars an hour for one unit."""
    source: str
    """URL of the source."""
    day: date
    """Date that the source gives, else the date of reading."""


def _prices() -> Iterator[Price]:
    for cloud, rows in (("gcp", GCP_ROWS), ("aws", (*AWS_ROWS, *_cpu_instances()))):
        for name, region, on_demand, spot, source in rows:
            for usd, as_spot in ((on_demand, False), (spot, True)):
                if usd is not None:
                    item = Item(cloud=cloud, name=name, spot=as_spot)
                    yield Price(item=item, region=region, usd=usd, source=source.url, day=source.day)


def _cpu_instances() -> Iterator[Row]:
    """Yield the on-demand rows of instance types without GPUs. Each family has one price for a vCPU."""
    for machine in EC2_MACHINES.values():
        if machine.family in AWS_FAMILIES:
            usd, source = AWS_FAMILIES[machine.family]
            yield machine.name, "us-east-1", usd * machine.vcpus, None, source


PRICES: tuple[Price, ...] = tuple(_prices())
"""All known prices."""
