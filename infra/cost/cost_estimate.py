"""CostEstimate: hourly cost of a platform for each pool, with an error band. It lists unpriced items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from infra.cost.price_tables import PRICES, Item, Price

SAME_REGION, OTHER_REGION = 0.05, 0.35
"""Relative error of a price in its own region and in another region.

The values are estimates from prices of one machine in many regions. For example, a2-highgpu-1g costs 28 % more in Tokyo
than in Iowa.
"""
SPOT_ERROR = 0.5
"""Relative error of a spot price, because spot prices change:
https://cloud.google.com/compute/docs/instances/spot#pricing"""
MAX_PRICE_AGE = timedelta(days=365)
"""Age after which a price is reported as old."""


@dataclass(frozen=True, kw_only=True)
class Money:
    """US dollars an hour, with the estimated range of the true price."""

    amount: float
    """Estimate."""
    low: float
    """Lower end of the range."""
    high: float
    """Upper end of the range."""

    def __add__(self, other: Money) -> Money:
        return Money(amount=self.amount + other.amount, low=self.low + other.low, high=self.high + other.high)

    def __str__(self) -> str:
        return f"${self.amount:,.2f} (${self.low:,.2f} to ${self.high:,.2f})"


NOTHING = Money(amount=0, low=0, high=0)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Quantity of one item, with its prices."""

    part: str
    """Pool of the item, or `system` or `cluster`."""
    item: Item
    """Item with a price."""
    quantity: float
    """Number of the item's units."""
    spot: bool
    """True if the settings request spot capacity."""
    on_demand_price: Price | None
    """On-demand price, or None if the table has none."""
    spot_price: Price | None
    """Spot price, or None. Items that are never spot, such as disks, have their on-demand price here."""
    region: str
    """Region of the item."""

    @property
    def price(self) -> Price | None:
        """Price for the provisioning model in the settings."""
        return self.spot_price if self.spot else self.on_demand_price

    def cost(self, *, spot: bool) -> Money | None:
        """Return US dollars an hour, as spot or on demand, or None without a price."""
        price = self.spot_price if spot else self.on_demand_price
        if price is None:
            return None
        error = SAME_REGION if price.region in (self.region, "global") else OTHER_REGION
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
        return sum((line.cost(spot=line.spot) or NOTHING for line in self.lines), NOTHING)

    def by_part(self, *, spot: bool | None = None) -> Mapping[str, Money]:
        """Return the total of each part's priced items. `spot` None uses the provisioning models in the settings."""
        totals: dict[str, Money] = {}
        for line in self.lines:
            cost = line.cost(spot=_is_spot(line, spot)) or NOTHING
            totals[line.part] = totals.get(line.part, NOTHING) + cost
        return totals

    def incomplete(self, *, spot: bool | None = None) -> frozenset[str]:
        """Return the parts with an unpriced item. `by_part` underestimates them."""
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
        return f"has items without a price, so `budget: {budget:g}` cannot be checked: {items}; remove the budget"
    return None


def price_line(part: str, cloud: str, region: str, name: str, quantity: float, *, spot: bool = False) -> Line:
    """Return a line with an item's prices in its region, else in another region."""
    on_demand_price = _nearest_price(Item(cloud=cloud, name=name), region)
    has_spot = not name.startswith("disk ") and part not in ("cluster", "system")
    spot_price = _nearest_price(Item(cloud=cloud, name=name, spot=True), region) if has_spot else on_demand_price
    return Line(
        part=part,
        item=Item(cloud=cloud, name=name),
        quantity=quantity,
        spot=spot,
        on_demand_price=on_demand_price,
        spot_price=spot_price,
        region=region,
    )


def _nearest_price(item: Item, region: str) -> Price | None:
    """Return the price in the region, else the first in another region."""
    prices = [price for price in PRICES if price.item == item]
    return min(prices, key=lambda price: price.region not in (region, "global"), default=None)
