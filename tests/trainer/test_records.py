"""Events as lines of JSON, also where a number is none."""

from __future__ import annotations

import json
import math

import pytest

from trainer.report.sinks import Record


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value: float) -> None:
    values: dict[str, str | int | float] = {"loss": value, "accuracy": 1.5, "host": "nan", "rank": 0}
    line = Record(name="train", time=1.0, values=values, global_step=3).line()
    expected = {"event": "train", "time": 1.0, **values, "loss": None, "global_step": 3}
    assert json.loads(line, parse_constant=no_constant) == expected
    assert line.endswith("\n")
