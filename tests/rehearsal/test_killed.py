"""Pulumi is killed after the k-th creation and the k-th deletion: the next `up` converges, the next `destroy` empties.

One k of each by default, all of them with TRAINYARD_TESTS=soak.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from commands.cloud_inventory import adopt, find_in_cloud, ownership, simulated, verify
from commands.stack_files import StateFiles
from simulation.cloud.model import edit_state, read_state
from tests.commands.platforms import cloud
from tests.conftest import SOAK
from tests.rehearsal.cloud_program import platform_of
from tests.rehearsal.simulated_stack import ROOT, SimulatedStack


@dataclass(frozen=True, kw_only=True)
class Case:
    """Stack on one cloud."""

    settings: Mapping[str, Any]
    """Settings of its platform."""
    resources: int
    """Number of calls of a complete `up`, equal to that of a complete `destroy`."""
    few: tuple[int, ...]
    """Numbers of calls after which Pulumi is killed, unless all numbers are requested."""

    @property
    def program(self) -> str:
        """Return the program that Pulumi runs."""
        return f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.commands.platforms import cloud
from tests.rehearsal.cloud_program import build
build({self.settings!r})
"""


CASES = {
    "gke": Case(
        settings={
            "kind": "gke",
            "project": "some-project",
            "name": "killed",
            "bucket": {"keep": False},
            "pools": [{"name": "gpus"}],
        },
        resources=22,
        few=(9,),
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
        few=(20,),
    ),
}
KILLS = [
    (name, count) for name, case in CASES.items() for count in (range(1, case.resources + 1) if SOAK else case.few)
]


def recover(stack: SimulatedStack, case: Case) -> list[str]:
    """Recover as `make up` and `make down` do first. Return the resources that the user must look for by hand."""
    StateFiles(stack.folder / "backend", "clouds", "test").repair()
    stack.run("cancel", "--yes")
    find = find_in_cloud(cloud(platform_of(case.settings)), simulated(stack.folder / "clouds"))
    return adopt(json.loads(stack.run("stack", "export")), lambda *words: bool(stack.run(*words)) or True, find)


def left(stack: SimulatedStack, case: Case) -> tuple[str, ...]:
    """Return the leftovers that `make verify-empty` finds."""
    platform = platform_of(case.settings)
    receipt = verify(
        "test", cloud(platform), "simulated", simulated(stack.folder / "clouds"), ownership(cloud(platform))
    )
    assert receipt.empty == (not receipt.left)
    return receipt.left


def assert_nothing_is_left(stack: SimulatedStack, case: Case) -> None:
    assert sorted(stack.clouds.resources) == []
    assert left(stack, case) == ()


@pytest.mark.parametrize(("cloud", "count"), KILLS)
def test_up_and_destroy_after_a_kill_converge(
    new_stack: Callable[[str], SimulatedStack], cloud: str, count: int
) -> None:
    case = CASES[cloud]
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


@pytest.mark.parametrize(("cloud", "count"), KILLS if SOAK else [("gke", 17), ("eks", 40)])
def test_destroy_after_a_killed_update_leaves_nothing(
    new_stack: Callable[[str], SimulatedStack], cloud: str, count: int
) -> None:
    case = CASES[cloud]
    stack = new_stack(case.program)
    stack.up(fault=f"crash:{count}", fails=True)
    assert recover(stack, case) == []
    stack.destroy()
    assert_nothing_is_left(stack, case)


@pytest.fixture(params=CASES)
def whole(request: pytest.FixtureRequest, new_stack: Callable[[str], SimulatedStack]) -> tuple[SimulatedStack, Case]:
    """Return a deployed stack, on each cloud."""
    case = CASES[request.param]
    stack = new_stack(case.program)
    stack.up()
    assert len(stack.clouds.resources) == case.resources
    return stack, case


def test_verify_empty_names_a_leaked_resource(whole: tuple[SimulatedStack, Case]) -> None:
    stack, case = whole
    kind, fault = ("service account", "account") if case.settings["kind"] == "gke" else ("address", "eip")
    stack.destroy(fault=f"leak:{fault}")
    (found,) = left(stack, case)
    assert found.startswith(f"{kind} ")


def test_destroy_without_its_cluster_deletes_the_rest(whole: tuple[SimulatedStack, Case]) -> None:
    stack, _case = whole
    with edit_state(stack.folder / "clouds") as state:
        for key in [key for key in state.resources if key.startswith(("gcp:container/", "aws:eks/"))]:
            del state.resources[key]
    stack.destroy()
    assert read_state(stack.folder / "clouds").resources == {}
