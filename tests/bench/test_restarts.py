"""Rule by which bench.restarts adds the wait of Kubernetes' Job controller."""

from __future__ import annotations

import pytest

from bench.restarts import backoff_seconds


@pytest.mark.parametrize(
    ("hosts_that_fail", "seconds"), [(0, 0.0), (1, 10.0), (2, 20.0), (4, 80.0), (8, 600.0), (64, 600.0)]
)
def test_backoff_seconds_double_with_each_failed_pod(hosts_that_fail: int, seconds: float) -> None:
    assert backoff_seconds(hosts_that_fail) == seconds
