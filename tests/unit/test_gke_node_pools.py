"""Every pool that the settings accept results in node pools within GKE's limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.gcp.config import POOL_NAME_LIMIT
from infra.gcp.pools import MAX_RUN_HOURS, node_pools, num_nodes
from settings.problems import ConfigError
from stack.config import cloud_of, parse

ZONES = ["us-central1-a", "us-central1-b", "us-central1-c"]
CAPACITY = ["on-demand", "spot", "flex-start", "queued", "reservation:r"]
MACHINES = [
    "n1-standard-8",
    "n2-standard-8",
    "g2-standard-24",
    "g4-standard-96",
    "a2-highgpu-8g",
    "a3-highgpu-8g",
    "a4-highgpu-8g",
]
HARDWARE = st.one_of(
    st.fixed_dictionaries({"machine_type": st.sampled_from(MACHINES)}),
    st.fixed_dictionaries({"accelerator": st.sampled_from(["nvidia-tesla-t4", "nvidia-tesla-v100"])}),
    st.fixed_dictionaries(
        {
            "accelerator": st.sampled_from(
                ["v4-8", "v4-32", "v5litepod-8", "v5litepod-16", "v5p-16", "v6e-32", "tpu7x-64"]
            )
        }
    ),
)
POOLS = st.builds(
    lambda hardware, others: {"name": "pool", "check_zones": False, **hardware, **others},
    HARDWARE,
    st.fixed_dictionaries(
        {"capacity": st.lists(st.sampled_from(CAPACITY), min_size=1, max_size=4, unique=True)},
        optional={
            "nodes": st.integers(min_value=1, max_value=6),
            "min_nodes": st.integers(min_value=0, max_value=4),
            "slices": st.integers(min_value=1, max_value=3),
            "zones": st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True),
            "compact": st.booleans(),
            "accelerators_per_node": st.sampled_from([1, 2, 3, 4, 8]),
        },
    ),
)


@given(POOLS)
def test_node_pools_of_accepted_settings_satisfy_gke_limits(pool: dict[str, Any]) -> None:
    try:
        platform = parse({"platform": {"kind": "gke", "project": "some-project", "pools": [pool]}, "jobs": []}).platform
    except ConfigError:
        return
    assert platform.kind == "gke"
    plans = node_pools(platform)
    assert len({plan.name for plan in plans}) == len(plans)
    for plan in plans:
        assert len(plan.name) <= POOL_NAME_LIMIT
        assert not (plan.gpu and plan.tpu)
        if plan.multi_host:
            assert plan.tpu
            assert plan.nodes == plan.tpu.hosts
            assert len(plan.zones) == 1
        if plan.compact:
            assert not plan.tpu
            assert len(plan.zones) == 1
        if plan.model.is_flexible or plan.has_fallback:
            assert plan.min_nodes == 0
        if plan.model.is_flexible:
            assert plan.max_run_hours is not None
            assert plan.max_run_hours <= MAX_RUN_HOURS
        if plan.min_nodes is None:
            assert plan.nodes % len(plan.zones) == 0
    assert sum(plan.nodes for plan in plans) >= num_nodes(platform.pools[0])
    assert all(each.amount > 0 for each in cloud_of(platform).quota())
