"""After each fault, a second `up` converges and `destroy` empties the clouds (real engine, no cluster)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commands.cloud_inventory import adopt
from simulation.cloud.model import edit_state
from tests.rehearsal.simulated_stack import SimulatedStack

PROGRAM = """
import pulumi_gcp as gcp
on = {"project": "some-project"}
api = gcp.projects.Service("compute", service="compute.googleapis.com", **on)
vpc = gcp.compute.Network("vpc", name="vpc", auto_create_subnetworks=False, opts=ResourceOptions(depends_on=[api],
    custom_timeouts=pulumi.CustomTimeouts(create="5m")), **on)
subnet = gcp.compute.Subnetwork("subnet", name="nodes", region="us-central1", network=vpc.id,
    ip_cidr_range="10.0.0.0/20", **on)
"""
FAULTS = ["stockout", "quota", "timeout", "slow", "crash", "eventual"]


@pytest.mark.parametrize("fault", [*(f"{kind}:network" for kind in FAULTS), *(f"denied:{call}" for call in (1, 2, 3))])
def test_second_up_after_a_fault_converges(new_stack: Callable[[str], SimulatedStack], fault: str) -> None:
    stack = new_stack(PROGRAM)
    stack.up(fault=fault, fails=True)
    assert stack.clouds.fault == ""
    commands = []

    def run(*words: str) -> bool:
        commands.append(words)
        return stack.succeeds(*words)

    assert adopt(stack.repaired_state(), run) == []
    assert bool(commands) == fault.startswith("crash")
    stack.up()
    assert len(stack.clouds.resources) == 3
    stack.destroy()
    assert stack.clouds.resources == {}


@pytest.mark.parametrize("call", [1, 3])
def test_second_destroy_after_a_denied_call_empties_the_clouds(
    new_stack: Callable[[str], SimulatedStack], call: int
) -> None:
    stack = new_stack(PROGRAM)
    stack.up()
    stack.destroy(fault=f"denied:{call}", fails=True)
    assert stack.clouds.resources != {}
    stack.destroy()
    assert stack.clouds.resources == {}


def test_up_after_a_crash_creates_a_missing_resource(new_stack: Callable[[str], SimulatedStack]) -> None:
    # An id that follows from the name does not prove that the resource exists in the cloud.
    stack = new_stack(PROGRAM)
    stack.up(fault="crash:network", fails=True)
    with edit_state(stack.folder / "clouds") as state:
        del state.resources["gcp:compute/network:Network projects/some-project/global/networks/vpc"]
    assert adopt(stack.repaired_state(), stack.succeeds) == []
    stack.up()
    stack.destroy()
    assert stack.clouds.resources == {}
