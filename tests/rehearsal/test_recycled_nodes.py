"""A change of a launch template reaches the node group that follows its latest version, under the real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.rehearsal.simulated_stack import ROOT, SimulatedStack


def program(**pool: Any) -> str:
    """Return a program of an EKS stack with a pool of CPUs."""
    settings = {
        "kind": "eks",
        "region": "us-west-2",
        "name": "disks",
        "bucket": {"keep": False},
        "pools": [{"name": "cpus", "machine_type": "c7i.2xlarge", "nodes": 2, **pool}],
    }
    return f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.rehearsal.cloud_program import build
build({settings!r})
"""


def test_new_disk_updates_the_node_group(tmp_path: Path) -> None:
    stack = SimulatedStack(tmp_path)
    stack.begin(program())
    stack.up()
    before = len(stack.clouds.operations)
    stack.write(program(disk_size_gb=200))
    shown = stack.run("preview", "--diff")
    assert "cpus-nodes" in shown
    stack.up()
    done = [f"{each.verb} {each.urn.rpartition('::')[2]}" for each in stack.clouds.operations[before:]]
    assert done == ["update cpus-template", "update cpus-nodes"]
    stack.destroy()
    assert stack.clouds.resources == {}
