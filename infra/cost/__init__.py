"""Hourly cost of a cloud platform: dated, sourced prices and a list of unpriced items."""

from infra.cost.cost_estimate import CostEstimate, Line, Money, over_budget

__all__ = ["CostEstimate", "Line", "Money", "over_budget"]
