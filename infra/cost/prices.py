"""The prices that Trainyard knows, each with its region, its source and its day. What is not here has no price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

CATALOG = "https://github.com/skypilot-org/skypilot-catalog/blob/006059e0f18acb1341e22a27751e9f80df6ba92f/catalogs/v8/gcp/vms.csv"
"""Google's own price list, as SkyPilot reads it from Google's billing interface. Its 700.0 stands for no price."""
AWS_CATALOG = "https://github.com/skypilot-org/skypilot-catalog/blob/00148f2af3672e2229b4f7bf8157d5a3f36e3c35/catalogs/v8/aws/vms.csv"
READ = date(2026, 11, 21)
"""Day on which the sources were read that say no day of their own."""
RECEIPTS = "https://raw.githubusercontent.com/datareceipts/data-receipts/main/109-gpu-pricing/hyperscalers.json"
"""Prices on demand that were read from AWS's own price list on a day that it says."""
DAYS = {RECEIPTS: date(2026, 11, 9)}
"""Source -> the day that it is of."""


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
    """When it was read there."""


_MONTH = 730
"""Hours, as both clouds count them."""

_GCP_ROWS = (
    # name, region, on demand, spot, source
    ("GKE control plane", "global", 0.10, None, "https://cloud.google.com/kubernetes-engine/pricing"),
    ("Cloud NAT per VM", "global", 0.0014, None, "https://cloud.google.com/nat/pricing"),
    ("external address", "global", 0.005, None, "https://cloud.google.com/nat/pricing"),
    ("disk pd-ssd GB", "us-central1", 34 / 200 / _MONTH, None, "https://cloud.google.com/compute/disks-image-pricing"),
    (
        "disk pd-standard GB",
        "us-central1",
        8 / 200 / _MONTH,
        None,
        "https://cloud.google.com/compute/disks-image-pricing",
    ),
    ("TPU v5p chip", "us-central1", 4.2, 4974.09235 / 5952, CATALOG),
    ("TPU v5p chip", "us-east5", 4.2, 1.68, CATALOG),
    ("TPU v6e chip", "us-central1", 2.7, 0.54421, CATALOG),
    ("TPU v6e chip", "us-east5", 2.7, 1.215, CATALOG),
    ("TPU v6e chip", "europe-west4", 2.97, 1.03748, CATALOG),
    # Rates that follow from two machines of the family each: a2-highgpu-1g and a2-megagpu-16g, e2-highcpu-8 and
    # e2-highmem-16. Those of A2 give n1-highmem-8 to the cent too: N1 has the same.
    ("a2 vCPU", "us-central1", 0.031611, None, CATALOG),
    ("a2 GiB", "us-central1", 0.004237, None, CATALOG),
    ("n1 vCPU", "us-central1", 0.031611, None, CATALOG),
    ("n1 GiB", "us-central1", 0.004237, None, CATALOG),
    ("e2 vCPU", "us-central1", 0.0218114, 0.0095705, CATALOG),
    ("e2 GiB", "us-central1", 0.0029236, 0.0012820, CATALOG),
)
_AWS_ROWS = (
    ("EKS control plane", "global", 0.10, None, "https://aws.amazon.com/eks/pricing/"),
    ("g6.2xlarge", "us-west-2", 0.9776, None, AWS_CATALOG),
    ("g6.2xlarge", "us-east-1", 0.9776, 0.4416, AWS_CATALOG),
    ("g6.24xlarge", "us-west-2", 6.6752, 2.1984, AWS_CATALOG),
    ("g6.24xlarge", "us-east-1", 6.6752, 2.5043, AWS_CATALOG),
    ("p4d.24xlarge", "us-east-1", 21.957642, None, RECEIPTS),
    ("p4de.24xlarge", "us-east-1", 27.44705, None, RECEIPTS),
    ("p5.48xlarge", "us-east-1", 55.04, None, RECEIPTS),
)


def _prices() -> Iterator[Price]:
    for cloud, rows in (("gcp", _GCP_ROWS), ("aws", _AWS_ROWS)):
        for name, region, on_demand, spot, source in rows:
            for usd, as_spot in ((on_demand, False), (spot, True)):
                if usd is not None:
                    item = Item(cloud=cloud, name=name, spot=as_spot)
                    yield Price(item=item, region=region, usd=usd, source=source, day=DAYS.get(source, READ))


PRICES: tuple[Price, ...] = tuple(_prices())
"""Every price."""
