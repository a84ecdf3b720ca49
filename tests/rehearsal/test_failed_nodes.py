"""The next `up` replaces a node group that EKS could not create for lack of capacity (real engine, no cluster)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from commands.cloud_inventory import refresh_stale, replace_options
from simulation.cloud.model import SimulatedResource
from tests.commands.platforms import cloud
from tests.rehearsal.cloud_program import platform_of
from tests.rehearsal.simulated_stack import SimulatedStack, platform_program

SETTINGS: dict[str, Any] = {
    "kind": "eks",
    "name": "stockout",
    "bucket": {"keep": False},
    "pools": [{"name": "cpus", "machine_type": "c7i.2xlarge", "nodes": 2}],
}


def program(**pool: Any) -> str:
    """Return the program with changes to the pool."""
    return platform_program({**SETTINGS, "pools": [{**SETTINGS["pools"][0], **pool}]})


def prepared(stack: SimulatedStack) -> list[str]:
    """Prepare an update as `make up` does. Return the options of Pulumi's command."""

    def export() -> Any:
        return json.loads(stack.run("stack", "export"))["deployment"]

    eks = cloud(platform_of(SETTINGS))
    return replace_options(eks, refresh_stale(eks, export, stack.run))


def group(stack: SimulatedStack) -> SimulatedResource:
    """Return the node group of the pool."""
    return stack.clouds.resources["aws:eks/nodeGroup:NodeGroup stockout:cpus"]


def test_up_after_a_stockout_replaces_the_failed_node_group(new_stack: Callable[[str], SimulatedStack]) -> None:
    stack = new_stack(program())
    assert "CREATE_FAILED" in stack.up(fault="stockout:nodegroup:cpus", fails=True)
    stack.up()
    assert group(stack).outputs["status"] == "CREATE_FAILED", "Pulumi itself only reads the failed group"
    stack.write(program(nodes=1))
    assert "ResourceInUseException" in stack.up(fails=True)
    before, options = len(stack.operations()), prepared(stack)
    stack.up(*options)
    assert stack.operations(before) == ["delete cpus-nodes", "create cpus-nodes"]
    assert group(stack).outputs["status"] == "ACTIVE"
    assert prepared(stack) == []
    # The options may name a group that the settings no longer have.
    stack.write(platform_program({**SETTINGS, "pools": []}))
    stack.up(*options)
    assert stack.operations(before)[-2:] == ["delete cpus-nodes", "delete cpus-template"]
    stack.destroy()
    assert stack.clouds.resources == {}
