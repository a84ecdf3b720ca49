"""Pulumi is killed after the k-th creation or deletion: the next `up` converges, and `destroy` leaves nothing.

The tests use one value of k for each cloud, or every value with TRAINYARD_TESTS=soak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from commands.cloud_inventory import adopt, id_finder, ownership, simulated, verify
from simulation.cloud.model import edit_state
from tests.commands.platforms import cloud
from tests.conftest import SOAK
from tests.rehearsal.cloud_program import platform_of
from tests.rehearsal.simulated_stack import SimulatedStack, platform_program


@dataclass(frozen=True, kw_only=True)
class Case:
    """Stack on one cloud."""

    settings: Mapping[str, Any]
    """Settings of the stack's platform."""
    resources: int
    """Number of resources that a complete `up` creates and a complete `destroy` deletes."""
    kill_after: int
    """Number of calls after which Pulumi is killed, unless TRAINYARD_TESTS=soak requests every number."""

    @property
    def program(self) -> str:
        """Program that Pulumi runs."""
        return platform_program(self.settings)


CASES = {
    "gke": Case(
        settings={
            "kind": "gke",
            "project": "some-project",
            "name": "killed",
            "bucket": {"keep": False},
            "pools": [{"name": "gpus"}],
        },
        resources=24,
        kill_after=9,
    ),
    "eks": Case(
        settings={
            "kind": "eks",
            "name": "killed",
            "zones": ["us-west-2a", "us-west-2b"],
            "bucket": {"keep": False},
            "pools": [{"name": "cpu", "machine_type": "c7i.2xlarge"}],
        },
        resources=52,
        kill_after=20,
    ),
}
KILLS = [
    (name, count)
    for name, case in CASES.items()
    for count in (range(1, case.resources + 1) if SOAK else [case.kill_after])
]


def recover(stack: SimulatedStack, case: Case) -> list[str]:
    """Recover as `make up` and `make down` do at their start. Return the resources that the user must look for."""
    find = id_finder(cloud(platform_of(case.settings)), simulated(stack.folder / "clouds"))
    return adopt(stack.repaired_state(), stack.succeeds, find)


def leftovers(stack: SimulatedStack, case: Case) -> tuple[str, ...]:
    """Return the leftovers that `make verify-empty` finds."""
    platform = cloud(platform_of(case.settings))
    receipt = verify("test", platform, "simulated", simulated(stack.folder / "clouds"), ownership(platform))
    assert receipt.empty == (not receipt.left)
    return receipt.left


def assert_nothing_is_left(stack: SimulatedStack, case: Case) -> None:
    """Assert that the clouds are empty, and that `make verify-empty` finds no leftovers."""
    assert sorted(stack.clouds.resources) == []
    assert leftovers(stack, case) == ()


@pytest.mark.parametrize(("name", "count"), KILLS)
def test_up_and_destroy_after_a_kill_converge(
    new_stack: Callable[[str], SimulatedStack], name: str, count: int
) -> None:
    case = CASES[name]
    stack = new_stack(case.program)
    stack.up(fault=f"crash:{count}", fails=True)
    assert len(stack.clouds.resources) >= count, "the cloud must complete the creation"
    assert recover(stack, case) == []
    stack.up()
    assert len(stack.clouds.resources) == case.resources
    assert '"update"' not in stack.run("preview", "--json")
    stack.destroy(fault=f"crash:{count}", fails=True)
    assert recover(stack, case) == []
    stack.destroy()
    assert_nothing_is_left(stack, case)


@pytest.mark.parametrize(("name", "count"), KILLS if SOAK else [("gke", 17), ("eks", 40)])
def test_destroy_after_a_killed_update_leaves_nothing(
    new_stack: Callable[[str], SimulatedStack], name: str, count: int
) -> None:
    case = CASES[name]
    stack = new_stack(case.program)
    stack.up(fault=f"crash:{count}", fails=True)
    assert recover(stack, case) == []
    stack.destroy()
    assert_nothing_is_left(stack, case)


@pytest.fixture(params=CASES)
def deployed(request: pytest.FixtureRequest, new_stack: Callable[[str], SimulatedStack]) -> tuple[SimulatedStack, Case]:
    """Return a deployed stack of each cloud, with its case."""
    case = CASES[request.param]
    stack = new_stack(case.program)
    stack.up()
    assert len(stack.clouds.resources) == case.resources
    return stack, case


def test_verify_empty_names_a_leaked_resource(deployed: tuple[SimulatedStack, Case]) -> None:
    stack, case = deployed
    kind, fault = ("service account", "account") if case.settings["kind"] == "gke" else ("address", "eip")
    stack.destroy(fault=f"leak:{fault}")
    (found,) = leftovers(stack, case)
    assert found.startswith(f"{kind} ")


def test_destroy_without_its_cluster_deletes_the_rest(deployed: tuple[SimulatedStack, Case]) -> None:
    stack, _case = deployed
    with edit_state(stack.folder / "clouds") as state:
        for key in [key for key in state.resources if key.startswith(("gcp:container/", "aws:eks/"))]:
            del state.resources[key]
    stack.destroy()
    assert stack.clouds.resources == {}
