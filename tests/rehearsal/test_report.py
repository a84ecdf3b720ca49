"""The report of a rehearsal says what the stack costs, and names what has no price."""

from __future__ import annotations

from rehearsal.report import Report


def test_costs_are_said_by_part() -> None:
    report = Report(stack="dev", cost={"gpus": 2.5}, cost_total="$2.50 ($2.00 to $3.00)", unpriced=["gpus: 2 x disk"])
    text = report.to_text()
    assert "Costs $2.50 ($2.00 to $3.00) and what has no price an hour with the most nodes:" in text
    assert "2.50  gpus" in text
    assert "no price  gpus: 2 x disk" in text


def test_nothing_is_said_of_costs_that_nobody_knows() -> None:
    assert "Costs" not in Report(stack="dev").to_text()
