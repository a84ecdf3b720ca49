"""Examples on PyTorch/XLA as a user runs them: `make up JOB=NAME` on the real local cluster."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.conftest import Checkout

# The image has six gigabytes.
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]


def test_example_mnist_spmd_trains_on_eight_devices(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=mnist-spmd", seconds=2000)
    for tensor, devices in (("images", "[8,1,1,1]"), ("0.weight", "[4,1,1,1,2]"), ("9.weight", "[4,2]")):
        line = rf"^sharding tensor={re.escape(tensor)} devices=\{{devices={re.escape(devices)}"
        assert re.search(line, text, re.M), text[-3000:]
    compiled = re.findall(r"^train .* compilations=(\d+)", text, re.M)
    assert len(set(compiled[1:])) == 1, compiled
    found = checkout.cluster.bucket.rglob("profiles/mnist-spmd/proc_0/**/*.xplane.pb")
    assert [path for path in found if path.stat().st_size]


def test_example_mnist_xla_ddp_averages_gradients(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=mnist-xla-ddp", seconds=2000)
    losses = set()
    for rank in range(4):
        found = re.search(rf"^mnist-xla-ddp/{rank} \| test epoch=1 .* loss=(\S+) rank={rank}/4 ", text, re.M)
        assert found, text[-3000:]
        losses.add(found[1])
    assert len(losses) == 1
