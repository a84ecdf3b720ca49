"""Delay of a pod's replacement by Kubernetes' Job controller, which bench.restarts adds to its times."""

from __future__ import annotations

import pytest

from bench.restarts import backoff_seconds


@pytest.mark.parametrize(
    ("failed_pods", "seconds"), [(0, 0.0), (1, 10.0), (2, 20.0), (4, 80.0), (8, 600.0), (64, 600.0)]
)
def test_backoff_seconds_double_with_each_failed_pod_up_to_ten_minutes(failed_pods: int, seconds: float) -> None:
    assert backoff_seconds(failed_pods) == seconds
