"""A new range for the networks between GPU hosts replaces their subnets and their pool. The pool is deleted first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rehearsal.simulated_stack import SimulatedStack, platform_program


def program(**changes: Any) -> str:
    """Return a program with two A3 Mega hosts, eight networks between the hosts, and changes to the settings."""
    settings = {
        "kind": "gke",
        "project": "some-project",
        "name": "fabric",
        "bucket": {"keep": False},
        "pools": [{"name": "gpus", "machine_type": "a3-megagpu-8g"}],
        **changes,
    }
    return platform_program(settings)


@pytest.fixture
def stack(new_stack: Callable[[str], SimulatedStack]) -> SimulatedStack:
    """Return the deployed stack."""
    deployed = new_stack(program())
    deployed.up()
    return deployed


def test_new_range_replaces_pool_before_subnets(stack: SimulatedStack) -> None:
    before = len(stack.operations())
    stack.write(program(network={"accelerators": "10.128.0.0/16"}))
    assert "gpus-nodes" in stack.run("preview", "--diff")
    stack.up()
    calls = stack.operations(before)
    subnets = [f"fabric-gpu-nic-{index}" for index in range(8)]
    assert calls.index("delete gpus-nodes") < min(calls.index(f"delete {name}") for name in subnets)
    assert calls.index("create gpus-nodes") > max(calls.index(f"create {name}") for name in subnets)
    assert not [call for call in calls if "control-plane" in call or "system-nodes" in call]
    stack.destroy()
    assert stack.clouds.resources == {}


def test_one_host_instead_of_two_keeps_the_cluster(stack: SimulatedStack) -> None:
    before = len(stack.operations())
    stack.write(program(pools=[{"name": "gpus", "machine_type": "a3-megagpu-8g", "nodes": 1}]))
    stack.up()
    calls = stack.operations(before)
    assert [call for call in calls if "gpus-nodes" in call] == ["delete gpus-nodes", "create gpus-nodes"]
    assert not [call for call in calls if "control-plane" in call]
    stack.write(program(pools=[{"name": "cpus", "machine_type": "c3-standard-4", "nodes": 1}]))
    stack.up()
    assert not [call for call in stack.operations(before) if "control-plane" in call]
