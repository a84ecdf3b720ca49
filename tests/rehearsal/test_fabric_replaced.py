"""The replacement of a fabric's networks also replaces its pool: the pool is deleted before its nodes' subnets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rehearsal.simulated_stack import ROOT, SimulatedStack


def program(**changes: Any) -> str:
    """Return a program with two A3 Mega hosts, eight additional networks between them and changed settings."""
    settings = {
        "kind": "gke",
        "project": "some-project",
        "name": "fabric",
        "bucket": {"keep": False},
        "pools": [{"name": "gpus", "machine_type": "a3-megagpu-8g"}],
        **changes,
    }
    return f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.rehearsal.cloud_program import build
build({settings!r})
"""


@pytest.fixture
def stack(tmp_path: Path) -> SimulatedStack:
    """Return a deployed stack."""
    made = SimulatedStack(tmp_path)
    made.begin(program())
    made.up()
    return made


def done(stack: SimulatedStack, before: int) -> list[str]:
    """Return the cloud's operations since then, such as `delete gpus-nodes`."""
    return [f"{each.verb} {each.urn.rpartition('::')[2]}" for each in stack.clouds.operations[before:]]


def test_new_range_replaces_pool_before_subnets(stack: SimulatedStack) -> None:
    before = len(stack.clouds.operations)
    stack.write(program(network={"accelerators": "10.128.0.0/16"}))
    assert "gpus-nodes" in stack.run("preview", "--diff")
    stack.up()
    calls = done(stack, before)
    subnets = [f"fabric-gpu-nic-{index}" for index in range(8)]
    assert calls.index("delete gpus-nodes") < min(calls.index(f"delete {name}") for name in subnets)
    assert calls.index("create gpus-nodes") > max(calls.index(f"create {name}") for name in subnets)
    assert not [call for call in calls if "control-plane" in call or "system-nodes" in call]
    stack.destroy()
    assert stack.clouds.resources == {}


def test_one_host_instead_of_two_keeps_the_cluster(stack: SimulatedStack) -> None:
    before = len(stack.clouds.operations)
    stack.write(program(pools=[{"name": "gpus", "machine_type": "a3-megagpu-8g", "nodes": 1}]))
    stack.up()
    calls = done(stack, before)
    assert [call for call in calls if "gpus-nodes" in call] == ["delete gpus-nodes", "create gpus-nodes"]
    assert not [call for call in calls if "control-plane" in call]
    stack.write(program(pools=[{"name": "cpus", "machine_type": "c3-standard-4", "nodes": 1}]))
    stack.up()
    assert not [call for call in done(stack, before) if "control-plane" in call]
