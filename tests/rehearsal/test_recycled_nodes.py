"""A changed launch template updates the node group that uses its latest version, under the real engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.rehearsal.simulated_stack import SimulatedStack, platform_program


def program(**pool: Any) -> str:
    """Return a program of an EKS stack with a pool of CPUs."""
    settings = {
        "kind": "eks",
        "region": "us-west-2",
        "name": "disks",
        "bucket": {"keep": False},
        "pools": [{"name": "cpus", "machine_type": "c7i.2xlarge", "nodes": 2, **pool}],
    }
    return platform_program(settings)


def test_new_disk_updates_the_node_group(new_stack: Callable[[str], SimulatedStack]) -> None:
    stack = new_stack(program())
    stack.up()
    before = len(stack.operations())
    stack.write(program(disk_size_gb=200))
    assert "cpus-nodes" in stack.run("preview", "--diff")
    stack.up()
    assert stack.operations(before) == ["update cpus-template", "update cpus-nodes"]
    stack.destroy()
    assert stack.clouds.resources == {}
