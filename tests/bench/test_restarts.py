"""Delay of Kubernetes' Job controller that bench.restarts adds."""

from __future__ import annotations

import pytest

from bench.restarts import backoff_seconds


@pytest.mark.parametrize(
    ("failed_hosts", "seconds"), [(0, 0.0), (1, 10.0), (2, 20.0), (4, 80.0), (8, 600.0), (64, 600.0)]
)
def test_backoff_seconds_double_with_each_failed_host_up_to_ten_minutes(failed_hosts: int, seconds: float) -> None:
    assert backoff_seconds(failed_hosts) == seconds
