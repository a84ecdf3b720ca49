"""What a cloud platform costs an hour: the sum of dated, sourced prices, and the names of what has no price here."""

from infra.cost.bill import Bill, Line, Money, bill, over_budget

__all__ = ["Bill", "Line", "Money", "bill", "over_budget"]
