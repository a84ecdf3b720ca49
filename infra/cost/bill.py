"""Bill: the price of a platform an hour, pool by pool, with an error band; nothing without a price counts as free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.config import PlatformConfig
from infra.cost.prices import PRICES, Item, Price
from infra.gcp.config import GkeConfig
from infra.gcp.pools import SYSTEM_DISK_GB, NodePoolPlan, num_nodes, pool_plans, system_disk_type, system_machine
from infra.hardware.gce import gce_machine
from infra.hardware.machines import MachineType

NAT_VMS = 32
"""Nodes above which Cloud NAT costs no more an hour: https://cloud.google.com/nat/pricing"""
SAME_REGION, OTHER_REGION = 0.05, 0.35
"""Error of a price in the region that it is of, and in another: an estimate from prices of one machine in many regions
(a2-highgpu-1g costs 28 % more in Tokyo than in Iowa)."""
SPOT_ERROR = 0.5
"""Error of a spot price, which moves: https://cloud.google.com/compute/docs/instances/spot#pricing"""
FRESH = timedelta(days=365)
"""Age at which a price is called old."""
WHOLE_MACHINES = frozenset({"a3-highgpu", "a3-megagpu", "a3-ultragpu", "c4-standard"})
"""Series of which prices are known by the vCPU, its share of the memory in it."""
GPUS_WITH_MACHINE = frozenset({"nvidia-b200"})
"""GPUs whose price has that of their machine in it."""


@dataclass(frozen=True, kw_only=True)
class Money:
    """US dollars an hour, with the band that the true price is thought to be in."""

    amount: float
    low: float
    high: float

    def __add__(self, other: Money) -> Money:
        return Money(amount=self.amount + other.amount, low=self.low + other.low, high=self.high + other.high)

    def __str__(self) -> str:
        return f"${self.amount:,.2f} (${self.low:,.2f} to ${self.high:,.2f})"


NOTHING = Money(amount=0, low=0, high=0)


@dataclass(frozen=True, kw_only=True)
class Line:
    """An amount of one thing."""

    part: str
    """Pool that it belongs to; `system` or `cluster` for what is not of a pool."""
    item: Item
    """What it is."""
    quantity: float
    """How many of the item's units."""
    spot: bool
    """Whether the settings ask for spot capacity."""
    on_demand_price: Price | None
    """Its price on demand; None where the table has none."""
    spot_price: Price | None
    """Its price as spot; that on demand for what has no spot price by nature, such as disks."""
    region: str
    """Region that it is in."""

    @property
    def price(self) -> Price | None:
        """The price that the settings ask for."""
        return self.spot_price if self.spot else self.on_demand_price

    def cost(self, *, spot: bool) -> Money | None:
        """US dollars an hour, as spot or on demand; None without a price."""
        price = self.spot_price if spot else self.on_demand_price
        if price is None:
            return None
        error = SAME_REGION if price.region in (self.region, "global") else OTHER_REGION
        if price.item.spot:
            error = max(error, SPOT_ERROR)
        amount = price.usd * self.quantity
        return Money(amount=amount, low=amount * (1 - error), high=amount * (1 + error))


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Every line of a platform, each at the most nodes that it may have."""

    lines: tuple[Line, ...]

    @property
    def total(self) -> Money:
        """What is priced, as the settings ask for it."""
        return sum((line.cost(spot=line.spot) or NOTHING for line in self.lines), NOTHING)

    def by_part(self, *, spot: bool | None = None) -> Mapping[str, Money]:
        """Part -> what of it is priced: as the settings ask for it, or all of it as spot or on demand."""
        found: dict[str, Money] = {}
        for line in self.lines:
            found[line.part] = found.get(line.part, NOTHING) + (line.cost(spot=_as_spot(line, spot)) or NOTHING)
        return found

    def incomplete(self, *, spot: bool | None = None) -> frozenset[str]:
        """The parts of which something has no price, so that `by_part` says too little."""
        return frozenset(line.part for line in self.lines if line.cost(spot=_as_spot(line, spot)) is None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """What the table has no price for."""
        return tuple(
            f"{line.part}: {line.quantity:g} x {line.item.name}{' (spot)' if line.spot else ''}"
            for line in self.lines
            if line.price is None
        )

    def warnings(self, today: date) -> tuple[str, ...]:
        """The prices that are old, each with its date and source."""
        old = {line.price for line in self.lines if line.price and today - line.price.day > FRESH}
        return tuple(
            f"price of {price.item.name} is of {price.day}, more than a year old; look at {price.source}"
            for price in sorted(old, key=lambda price: price.item.name)
        )


def _as_spot(line: Line, spot: bool | None) -> bool:
    """The system's nodes and the cluster are never spot."""
    return line.spot if spot is None or line.part in ("cluster", "system") else spot


def bill(platform: PlatformConfig) -> Bill:
    """What the platform costs; no lines for one that is not a cloud's."""
    if isinstance(platform, GkeConfig):
        return Bill(lines=tuple(_gke(platform)))
    if isinstance(platform, EksConfig):
        return Bill(lines=tuple(_eks(platform)))
    return Bill(lines=())


def over_budget(found: Bill, budget: float | None) -> str | None:
    """Why a bill is not within a budget in US dollars an hour; None if it is, or if there is no budget."""
    if budget is None:
        return None
    if found.total.amount > budget:
        return f"costs {found.total} an hour, more than `budget: {budget:g}`; raise the budget or ask for less"
    if found.unpriced:
        what = "; ".join(found.unpriced)
        return f"has parts without a price, so `budget: {budget:g}` cannot be checked: {what}; remove the budget"
    return None


def _line(part: str, cloud: str, region: str, name: str, quantity: float, *, spot: bool = False) -> Line:
    on_demand = _nearest(Item(cloud=cloud, name=name), region)
    has_spot = not name.startswith("disk ") and part not in ("cluster", "system")
    as_spot = _nearest(Item(cloud=cloud, name=name, spot=True), region) if has_spot else on_demand
    return Line(
        part=part,
        item=Item(cloud=cloud, name=name),
        quantity=quantity,
        spot=spot,
        on_demand_price=on_demand,
        spot_price=as_spot,
        region=region,
    )


def _nearest(item: Item, region: str) -> Price | None:
    """The price in that region, else in another, which the error band says."""
    found = [price for price in PRICES if price.item == item]
    return min(found, key=lambda price: price.region not in (region, "global"), default=None)


def _gke(platform: GkeConfig) -> Iterator[Line]:
    region, nodes = platform.region, platform.system_pool.max_nodes
    yield _line("cluster", "gcp", region, "GKE control plane", 1)
    yield from _gce_machine("system", region, gce_machine(system_machine(platform)), nodes)
    yield _line("system", "gcp", region, f"disk {system_disk_type(platform)} GB", SYSTEM_DISK_GB * nodes)
    for pool in platform.pools:
        # Ways to get the same nodes stand for each other: the first one is what the pool asks for.
        plan, count = pool_plans(platform, pool)[0], num_nodes(pool)
        nodes += count
        yield from _gke_pool(plan, region, count)
    yield _line("cluster", "gcp", region, "Cloud NAT per VM", min(nodes, NAT_VMS))
    yield _line("cluster", "gcp", region, "external address", 1)


def _gke_pool(plan: NodePoolPlan, region: str, nodes: int) -> Iterator[Line]:
    # Flex-start nodes cost less than on demand; they are not thought to.
    spot, part = plan.rung == "spot", plan.pool.name
    if plan.tpu is not None:
        yield _line(part, "gcp", region, f"TPU {plan.tpu.generation} chip", nodes * plan.tpu.chips_per_host, spot=spot)
    else:
        yield from _gce_machine(part, region, plan.machine, nodes, spot=spot)
        if plan.gpu is not None:
            name = f"{plan.gpu} with its share of the machine" if plan.gpu in GPUS_WITH_MACHINE else plan.gpu
            yield _line(part, "gcp", region, name, nodes * plan.gpus, spot=spot)
    disk = f"disk {plan.disk_type} GB"
    yield _line(part, "gcp", region, disk, plan.pool.disk_size_gb * nodes, spot=spot)


def _gce_machine(part: str, region: str, machine: MachineType, nodes: int, *, spot: bool = False) -> Iterator[Line]:
    # Google prices machines by their parts, the same for every size of a family.
    family, series = machine.name.partition("-")[0], machine.name.rpartition("-")[0]
    if series in WHOLE_MACHINES:
        yield _line(part, "gcp", region, f"{series} vCPU with its memory", machine.vcpus * nodes, spot=spot)
    elif machine.gpu not in GPUS_WITH_MACHINE:
        yield _line(part, "gcp", region, f"{family} vCPU", machine.vcpus * nodes, spot=spot)
        yield _line(part, "gcp", region, f"{family} GiB", machine.memory_gib * nodes, spot=spot)
    if machine.local_ssds:
        yield _line(part, "gcp", region, "local SSD 375 GB", machine.local_ssds * nodes, spot=spot)


def _eks(platform: EksConfig) -> Iterator[Line]:
    region, system = platform.region, platform.system_pool
    gateways = len(platform.all_zones) if platform.network.nat_per_zone else 1
    yield _line("cluster", "aws", region, "EKS control plane", 1)
    yield _line("cluster", "aws", region, "NAT gateway", gateways)
    yield _line("system", "aws", region, system.machine_type, system.nodes)
    yield _line("system", "aws", region, "disk gp3 GB", SYSTEM_DISK_GB * system.nodes)
    for plan in node_groups(platform):
        spot = plan.pool.capacity == "spot"
        if plan.capacity_block:
            yield _line(plan.name, "aws", region, f"{plan.machine.name} in a capacity block", plan.nodes)
        else:
            yield _line(plan.name, "aws", region, plan.machine.name, plan.nodes, spot=spot)
        disk = f"disk {plan.pool.disk_type} GB"
        yield _line(plan.name, "aws", region, disk, plan.pool.disk_size_gb * plan.nodes, spot=spot)
