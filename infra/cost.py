"""CostEstimate: hourly cost of a platform, with error bands. Price: an item's price, date and source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from infra.hardware.ec2 import EC2_MACHINES


@dataclass(frozen=True, kw_only=True)
class Item:
    """Item with a price."""

    cloud: str
    """`gcp` or `aws`."""
    name: str
    """Name, followed by a unit if the price is per unit, as in `disk pd-ssd GB`."""
    spot: bool = False


@dataclass(frozen=True, kw_only=True)
class Price:
    """Price of an item in a region."""

    item: Item
    region: str
    """Region of the price, or `global` if it is the same in all regions."""
    usd: float
    """US dollars an hour for one unit."""
    source: str
    day: date
    """Date in the source. Without one, READING_DATE."""


@dataclass(frozen=True)
class Source:
    """Source of prices."""

    url: str
    day: date
    """Date in the source. Without one, READING_DATE."""


READING_DATE = date(2026, 11, 21)
"""Date on which the authors read the sources that have no date."""
_GITHUB = "https://github.com/"
GCP_CATALOG = Source(
    f"{_GITHUB}skypilot-org/skypilot-catalog/blob/006059e0f18acb1341e22a27751e9f80df6ba92f/catalogs/v8/gcp/vms.csv",
    READING_DATE,
)
"""Google's price list, which SkyPilot reads from Google's billing API. The value 700.0 stands for an unknown price.
In regions that sell flex-start, some H100, A100-80GB and B200 rows have the flex-start price. The rows here are from
regions with a correct on-demand price."""
AWS_CATALOG = Source(
    f"{_GITHUB}skypilot-org/skypilot-catalog/blob/00148f2af3672e2229b4f7bf8157d5a3f36e3c35/catalogs/v8/aws/vms.csv",
    READING_DATE,
)
G4_PULL_REQUEST = Source(f"{_GITHUB}skypilot-org/skypilot/pull/10533", date(2026, 8, 20))
"""Prices of us-west1 from the catalogue of that day, quoted in the pull request. It quotes no spot prices."""
AUTOSCALER = Source(
    f"{_GITHUB}kubernetes/autoscaler/blob/0411d1c8af6b4b095f968868a0f013003fd8a2d8/"
    "cluster-autoscaler/cloudprovider/gce/gce_price_info.go",
    READING_DATE,
)
"""Rates of us-central1 that the Kubernetes autoscaler uses to compare node pools."""
KARPENTER = Source(
    f"{_GITHUB}aws/karpenter-provider-aws/blob/v1.15.1/pkg/providers/pricing/zz_generated.pricing_aws.go",
    date(2026, 7, 20),
)
"""AWS's price list of us-east-1, as generated into Karpenter."""
CAPACITY_BLOCKS = Source("https://aws.amazon.com/ec2/capacityblocks/pricing/", date(2024, 12, 31))
"""The rates are from an older copy of the page, and were valid until January 2025."""
EBS = Source(
    f"{_GITHUB}aws/agent-toolkit-for-aws/blob/main/skills/core-skills/aws-billing-and-cost-management/references/"
    "ebs-optimization.md",
    READING_DATE,
)
"""A gp3 volume includes 3,000 operations a second. An io2 volume includes none."""
NAT_GATEWAY = Source("https://cloudburn.io/blog/aws-nat-gateway-pricing", date(2026, 2, 24))
"""Hourly price of the gateway only. Traffic costs extra for each GB."""
VPC = Source(
    "https://www.factualminds.com/blog/amazon-vpc-pricing-endpoints-peering-transit-gateway/", date(2026, 6, 13)
)
"""Price of an address for a month of 720 hours, and hourly price of an interface endpoint in each zone.

Traffic through an endpoint costs extra for each GB.
"""
HYPERDISK = Source(
    "https://pub.dev/documentation/terradart_google/0.28.0/terradart_google/GoogleComputeStoragePool-class.html",
    READING_DATE,
)
"""SKU 5BC4-9775-DEC9, capacity only. Provisioned operations above the included ones cost extra."""
GKE = Source("https://cloud.google.com/kubernetes-engine/pricing", READING_DATE)
GKE_EXTENDED = Source(f"{_GITHUB}mattrobinsonsre/terrapod/issues/1001", date(2026, 7, 22))
"""Amount of the additional fee. Google's page says when it applies: https://cloud.google.com/kubernetes-engine/pricing"""
CLOUD_NAT = Source("https://cloud.google.com/nat/pricing", READING_DATE)
EKS = Source("https://aws.amazon.com/eks/pricing/", READING_DATE)

Row = tuple[str, str, float | None, float | None, Source]
"""Item, region, on-demand price, spot price, source."""

_HOURS_PER_MONTH = 730
"""Hours a month, as both clouds count them."""
_A2_GPU = 3.673385 - 12 * 0.031611 - 85 * 0.004237
"""Price of an A100: a2-highgpu-1g without its vCPUs and memory."""
_A2_ULTRA_GPU = 5.0688 - 12 * 0.031611 - 170 * 0.004237 - 375 * 0.08 / _HOURS_PER_MONTH
"""Price of an A100 of 80 GB: a2-ultragpu-1g without its vCPUs, memory and disk."""

GCP_ROWS: tuple[Row, ...] = (
    ("GKE control plane", "global", 0.10, None, GKE),
    ("GKE extended support", "global", 0.50, None, GKE_EXTENDED),
    ("Cloud NAT per VM", "global", 0.0014, None, CLOUD_NAT),
    ("external address", "global", 0.005, None, CLOUD_NAT),
    ("disk pd-standard GB", "us-central1", 0.04 / _HOURS_PER_MONTH, None, AUTOSCALER),
    ("disk pd-balanced GB", "us-central1", 0.10 / _HOURS_PER_MONTH, None, AUTOSCALER),
    ("disk pd-ssd GB", "us-central1", 0.17 / _HOURS_PER_MONTH, None, AUTOSCALER),
    ("disk hyperdisk-balanced GB", "us-central1", 0.08 / _HOURS_PER_MONTH, None, HYPERDISK),
    ("local SSD 375 GB", "us-central1", 375 * 0.08 / _HOURS_PER_MONTH, 375 * 0.048 / _HOURS_PER_MONTH, AUTOSCALER),
    # TPU chips, including their host
    ("TPU v4 chip", "us-central2", 12.88 / 4, 3.686 / 4, GCP_CATALOG),
    ("TPU v5e chip", "us-central1", 1.2, 0.24493, GCP_CATALOG),
    ("TPU v5e chip", "us-east5", 1.2, 0.6, GCP_CATALOG),
    ("TPU v5e chip", "us-west4", 1.2, 0.48, GCP_CATALOG),
    ("TPU v5e chip", "europe-west4", 1.56, 0.44498, GCP_CATALOG),
    ("TPU v5p chip", "us-central1", 4.2, 4974.09235 / 5952, GCP_CATALOG),
    ("TPU v5p chip", "us-east5", 4.2, 1.68, GCP_CATALOG),
    ("TPU v6e chip", "us-central1", 2.7, 0.54421, GCP_CATALOG),
    ("TPU v6e chip", "us-east5", 2.7, 1.215, GCP_CATALOG),
    ("TPU v6e chip", "europe-west4", 2.97, 1.03748, GCP_CATALOG),
    # GPUs, without the vCPUs and memory of their machine
    ("nvidia-tesla-t4", "us-central1", 0.35, 0.175, GCP_CATALOG),
    ("nvidia-tesla-t4", "europe-west4", 1.47 / 4, 0.175, GCP_CATALOG),
    ("nvidia-tesla-v100", "us-central1", 2.48, 1.0885, GCP_CATALOG),
    ("nvidia-tesla-v100", "europe-west4", 2.604, 1.0443, GCP_CATALOG),
    ("nvidia-l4", "us-central1", 0.56004, 0.2231, GCP_CATALOG),
    ("nvidia-l4", "europe-west4", 0.58804, 0.2438, GCP_CATALOG),
    ("nvidia-rtx-pro-6000", "us-west1", 1.09565, None, G4_PULL_REQUEST),
    ("nvidia-tesla-a100", "us-central1", _A2_GPU, 1.102016 - 12 * 0.009483 - 85 * 0.004237 * 0.3, AUTOSCALER),
    ("nvidia-a100-80gb", "us-central1", _A2_ULTRA_GPU, None, AUTOSCALER),
    ("nvidia-a100-80gb", "us-east5", 8.84839 / 2, 2.6712 / 2, GCP_CATALOG),
    ("nvidia-h100-80gb", "us-east4", 9.79655, 2.2356, GCP_CATALOG),
    ("nvidia-h100-mega-80gb", "us-central1", 82.75421 / 8, 25.2808 / 8, GCP_CATALOG),
    ("nvidia-h200-141gb", "us-central1", 74.49392 / 8, 37.2472 / 8, GCP_CATALOG),
    # The catalogue has no separate price for A4 machines. The price of their GPUs includes it.
    ("nvidia-b200 with its share of the machine", "us-central1", 90.216 / 8, 32.6064 / 8, GCP_CATALOG),
    # Rates of vCPUs and memory. The spot discount of a family applies to both.
    ("a2 vCPU", "us-central1", 0.031611, 0.031611 / 2, GCP_CATALOG),
    ("a2 GiB", "us-central1", 0.004237, 0.004237 / 2, GCP_CATALOG),
    ("c2 vCPU", "us-central1", 0.03398, 0.03398 * 0.27187 / 0.83523, GCP_CATALOG),
    ("c2 GiB", "us-central1", 0.00455, 0.00455 * 0.27187 / 0.83523, GCP_CATALOG),
    ("c3 vCPU", "us-central1", 0.03398, 0.003086, AUTOSCALER),
    ("c3 GiB", "us-central1", 0.00456, 0.00456 * 0.003086 / 0.03398, AUTOSCALER),
    ("e2 vCPU", "us-central1", 0.0218114, 0.0095705, GCP_CATALOG),
    ("e2 GiB", "us-central1", 0.0029236, 0.0012820, GCP_CATALOG),
    ("g2 vCPU", "us-central1", 0.024988, 0.007496, AUTOSCALER),
    ("g2 GiB", "us-central1", 0.002927, 0.002927 * 0.007496 / 0.024988, AUTOSCALER),
    ("n1 vCPU", "us-central1", 0.031611, 0.006655, AUTOSCALER),
    ("n1 GiB", "us-central1", 0.004237, 0.004237 * 0.006655 / 0.031611, AUTOSCALER),
    ("n2 vCPU", "us-central1", 0.031611, 0.031611 * 1.02778 / 3.14434, GCP_CATALOG),
    ("n2 GiB", "us-central1", 0.004237, 0.004237 * 1.02778 / 3.14434, GCP_CATALOG),
    ("n2d vCPU", "us-central1", 0.027502, 0.002773, AUTOSCALER),
    ("n2d GiB", "us-central1", 0.003686, 0.003686 * 0.002773 / 0.027502, AUTOSCALER),
    # Families with prices of whole machines only. Prices are proportional to the vCPUs.
    ("c4-standard vCPU with its memory", "us-central1", 4.74408 / 96, 2.25864 / 96, GCP_CATALOG),
    ("g4-standard vCPU with its memory", "us-west1", 3.40428 / 48, None, G4_PULL_REQUEST),
    ("a3-highgpu vCPU with its memory", "us-central1", 1.18251 / 26, 0.36117 / 26, GCP_CATALOG),
    ("a3-highgpu vCPU with its memory", "us-east4", 1.18251 / 26, 0.26996 / 26, GCP_CATALOG),
    ("a3-megagpu vCPU with its memory", "us-west1", 9.46006 / 208, 2.88933 / 208, GCP_CATALOG),
    ("a3-ultragpu vCPU with its memory", "us-central1", 12.266 / 224, 3.74713 / 224, GCP_CATALOG),
)

AWS_FAMILIES: Mapping[str, tuple[float, Source]] = {
    "m5": (0.048, KARPENTER),
    "m6i": (0.048, KARPENTER),
    "m7i": (0.0504, KARPENTER),
    "c6i": (0.0425, KARPENTER),
    "c7i": (0.044625, KARPENTER),
    "r6i": (0.063, KARPENTER),
    "r7i": (0.06615, KARPENTER),
}
"""US dollars an hour for each vCPU of a family without GPUs, in us-east-1, on demand."""

_EC2_GPUS: Mapping[str, float] = {
    "g4dn.xlarge": 0.526,
    "g4dn.2xlarge": 0.752,
    "g4dn.4xlarge": 1.204,
    "g4dn.8xlarge": 2.176,
    "g4dn.12xlarge": 3.912,
    "g4dn.16xlarge": 4.352,
    "g4dn.metal": 7.824,
    "g5.xlarge": 1.006,
    "g5.2xlarge": 1.212,
    "g5.4xlarge": 1.624,
    "g5.8xlarge": 2.448,
    "g5.12xlarge": 5.672,
    "g5.16xlarge": 4.096,
    "g5.24xlarge": 8.144,
    "g5.48xlarge": 16.288,
    "g6.xlarge": 0.8048,
    "g6.4xlarge": 1.3232,
    "g6.8xlarge": 2.0144,
    "g6.12xlarge": 4.6016,
    "g6.16xlarge": 3.3968,
    "g6.48xlarge": 13.3504,
    "g6e.xlarge": 1.861,
    "g6e.2xlarge": 2.24208,
    "g6e.4xlarge": 3.00424,
    "g6e.8xlarge": 4.52856,
    "g6e.12xlarge": 10.49264,
    "g6e.16xlarge": 7.57719,
    "g6e.24xlarge": 15.06559,
    "g6e.48xlarge": 30.13118,
    "g7e.2xlarge": 3.36312,
    "g7e.4xlarge": 3.99816,
    "g7e.8xlarge": 5.26824,
    "g7e.12xlarge": 8.28608,
    "g7e.24xlarge": 16.57216,
    "g7e.48xlarge": 33.14432,
    "p3.2xlarge": 3.06,
    "p3.8xlarge": 12.24,
    "p3.16xlarge": 24.48,
    "p3dn.24xlarge": 31.212,
    "p4d.24xlarge": 21.957642,
    "p4de.24xlarge": 27.44705,
    "p5.48xlarge": 55.04,
    "p5en.48xlarge": 63.296,
    "p6-b200.48xlarge": 113.9328,
    "p6-b300.48xlarge": 142.416,
}

AWS_ROWS: tuple[Row, ...] = (
    ("EKS control plane", "global", 0.10, None, EKS),
    ("NAT gateway", "us-east-1", 0.045, None, NAT_GATEWAY),
    ("public IPv4 address", "us-east-1", 3.60 / 720, None, VPC),
    ("interface endpoint in a zone", "us-east-1", 0.01, None, VPC),
    ("disk gp3 GB", "us-east-1", 0.08 / _HOURS_PER_MONTH, None, EBS),
    ("disk io2 GB", "us-east-1", 0.125 / _HOURS_PER_MONTH, None, EBS),
    ("disk io2 IOPS", "us-east-1", 0.065 / _HOURS_PER_MONTH, None, EBS),
    ("g6.2xlarge", "us-west-2", 0.9776, None, AWS_CATALOG),
    ("g6.2xlarge", "us-east-1", 0.9776, 0.4416, AWS_CATALOG),
    ("g6.24xlarge", "us-west-2", 6.6752, 2.1984, AWS_CATALOG),
    ("g6.24xlarge", "us-east-1", 6.6752, 2.5043, AWS_CATALOG),
    ("p6-b300.48xlarge", "us-west-2", 142.416, 33.4308, AWS_CATALOG),
    *((name, "us-east-1", usd, None, KARPENTER) for name, usd in _EC2_GPUS.items()),
    ("p4d.24xlarge in a capacity block", "us-west-2", 14.75, None, CAPACITY_BLOCKS),
    ("p5.48xlarge in a capacity block", "us-east-1", 39.33, None, CAPACITY_BLOCKS),
    ("p5e.48xlarge in a capacity block", "us-east-2", 43.26, None, CAPACITY_BLOCKS),
)


def _prices() -> Iterator[Price]:
    for cloud, rows in (("gcp", GCP_ROWS), ("aws", (*AWS_ROWS, *_cpu_instances()))):
        for name, region, on_demand, spot, source in rows:
            for usd, is_spot in ((on_demand, False), (spot, True)):
                if usd is not None:
                    item = Item(cloud=cloud, name=name, spot=is_spot)
                    yield Price(item=item, region=region, usd=usd, source=source.url, day=source.day)


def _cpu_instances() -> Iterator[Row]:
    """Yield the on-demand rows of instance types without GPUs. Each family has one price for a vCPU."""
    for machine in EC2_MACHINES.values():
        if machine.family in AWS_FAMILIES:
            usd, source = AWS_FAMILIES[machine.family]
            yield machine.name, "us-east-1", usd * machine.vcpus, None, source


PRICES: tuple[Price, ...] = tuple(_prices())
"""All known prices."""

SAME_REGION_ERROR, OTHER_REGION_ERROR = 0.05, 0.35
"""Relative error of a price in its own region and in another region.

The values are estimates from prices of one machine in many regions. For example, a2-highgpu-1g costs 28 % more in Tokyo
than in Iowa.
"""
SPOT_ERROR = 0.5
"""Relative error of a spot price, because spot prices change:
https://cloud.google.com/compute/docs/instances/spot#pricing"""
MAX_PRICE_AGE = timedelta(days=365)
"""Age after which `CostEstimate.warnings` reports a price."""


@dataclass(frozen=True, kw_only=True)
class Money:
    """US dollars an hour, with the estimated range of the true price."""

    amount: float
    low: float
    """Lower end of the range."""
    high: float
    """Upper end of the range."""

    def __add__(self, other: Money) -> Money:
        return Money(amount=self.amount + other.amount, low=self.low + other.low, high=self.high + other.high)

    def __str__(self) -> str:
        return f"${self.amount:,.2f} (${self.low:,.2f} to ${self.high:,.2f})"


NO_COST = Money(amount=0, low=0, high=0)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Quantity of one item, with its prices."""

    part: str
    """Pool of the item, or `system` or `cluster`."""
    item: Item
    quantity: float
    """Number of the item's units."""
    spot: bool
    """True if the settings request spot capacity."""
    on_demand_price: Price | None
    """On-demand price, or None if the table has none."""
    spot_price: Price | None
    """Spot price, or None. Items that are never spot, such as disks, have their on-demand price here."""
    region: str

    @property
    def price(self) -> Price | None:
        """Price for the provisioning model in the settings."""
        return self.spot_price if self.spot else self.on_demand_price

    def cost(self, *, spot: bool) -> Money | None:
        """Return US dollars an hour, as spot or on demand, or None without a price."""
        price = self.spot_price if spot else self.on_demand_price
        if price is None:
            return None
        error = SAME_REGION_ERROR if price.region in (self.region, "global") else OTHER_REGION_ERROR
        if price.item.spot:
            error = max(error, SPOT_ERROR)
        amount = price.usd * self.quantity
        return Money(amount=amount, low=amount * (1 - error), high=amount * (1 + error))


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """Items of a platform at the maximum number of nodes."""

    lines: tuple[Line, ...]

    @property
    def total(self) -> Money:
        """Total of the priced items, with the provisioning models in the settings."""
        return sum((line.cost(spot=line.spot) or NO_COST for line in self.lines), NO_COST)

    def by_part(self, *, spot: bool | None = None) -> Mapping[str, Money]:
        """Return the total of each part's priced items. Without `spot`, use the provisioning models in the settings."""
        totals: dict[str, Money] = {}
        for line in self.lines:
            cost = line.cost(spot=_is_spot(line, spot)) or NO_COST
            totals[line.part] = totals.get(line.part, NO_COST) + cost
        return totals

    def incomplete(self, *, spot: bool | None = None) -> frozenset[str]:
        """Return the parts with an unpriced item. `by_part` underestimates their cost."""
        return frozenset(line.part for line in self.lines if line.cost(spot=_is_spot(line, spot)) is None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Items without a price."""
        return tuple(
            f"{line.part}: {line.quantity:g} x {line.item.name}{' (spot)' if line.spot else ''}"
            for line in self.lines
            if line.price is None
        )

    def warnings(self, today: date) -> tuple[str, ...]:
        """Return a warning for each old price, with its date and source."""
        old = {line.price for line in self.lines if line.price and today - line.price.day > MAX_PRICE_AGE}
        return tuple(
            f"price of {price.item.name} is from {price.day}, more than a year old; check {price.source}"
            for price in sorted(old, key=lambda price: price.item.name)
        )


def _is_spot(line: Line, spot: bool | None) -> bool:
    """Return True if a line uses its spot price. System nodes and the cluster are never spot."""
    return line.spot if spot is None or line.part in ("cluster", "system") else spot


def over_budget(estimate: CostEstimate, budget: float | None) -> str | None:
    """Return an error if a cost estimate exceeds the budget (US dollars an hour) or has unpriced items, else None."""
    if budget is None:
        return None
    if estimate.total.amount > budget:
        return f"costs {estimate.total} an hour, more than `budget: {budget:g}`; raise the budget or request less"
    if estimate.unpriced:
        items = "; ".join(estimate.unpriced)
        return f"has items without a price ({items}), so Trainyard cannot check `budget: {budget:g}`; remove the budget"
    return None


def price_line(part: str, cloud: str, region: str, name: str, quantity: float, *, spot: bool = False) -> Line:
    """Return a line with an item's prices in `region`, else in another region."""
    on_demand_price = _price_in_region_or_first(Item(cloud=cloud, name=name), region)
    has_spot = not name.startswith("disk ") and part not in ("cluster", "system")
    spot_price = (
        _price_in_region_or_first(Item(cloud=cloud, name=name, spot=True), region) if has_spot else on_demand_price
    )
    return Line(
        part=part,
        item=Item(cloud=cloud, name=name),
        quantity=quantity,
        spot=spot,
        on_demand_price=on_demand_price,
        spot_price=spot_price,
        region=region,
    )


def _price_in_region_or_first(item: Item, region: str) -> Price | None:
    """Return the price in the region, else the first price in another region, else None."""
    prices = [price for price in PRICES if price.item == item]
    return min(prices, key=lambda price: price.region not in (region, "global"), default=None)
