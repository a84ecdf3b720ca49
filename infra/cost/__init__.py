"""Hourly cost of a cloud platform: dated, sourced prices, and the names of items without a price."""

from infra.cost.bill import Bill, Line, Money, over_budget

__all__ = ["Bill", "Line", "Money", "over_budget"]
