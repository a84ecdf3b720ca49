"""Hourly cost of a cloud platform: dated, sourced prices and a list of unpriced items."""

from infra.cost.bill import Bill, Line, Money, over_budget

__all__ = ["Bill", "Line", "Money", "over_budget"]
