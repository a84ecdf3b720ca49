"""Pulumi killed after the k-th creation and the k-th deletion: the next `up` converges, the next `destroy` empties.

A handful of k by default; all of them with TRAINYARD_EVERY_KILL=1, which takes about half an hour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commands.checkpoint import repair
from commands.pending import adopt
from commands.verify_empty import simulated, verify
from infra.gcp.config import GkeConfig
from rehearsal.cloud.state import changing, read_state
from tests.rehearsal.simulated_stack import ROOT, SimulatedStack

SETTINGS = {
    "kind": "gke",
    "project": "some-project",
    "name": "killed",
    "bucket": {"keep": False},
    "pools": [{"name": "gpus"}],
}
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.rehearsal.gke_program import build
build({SETTINGS!r})
"""
RESOURCES = 22
"""Calls that a whole `up` makes, and so does a whole `destroy`."""


def kills(*few: int) -> tuple[int, ...]:
    """After how many calls Pulumi is killed: a few, or every number of them."""
    return tuple(range(1, RESOURCES + 1)) if os.environ.get("TRAINYARD_EVERY_KILL") else few


def recover(stack: SimulatedStack) -> list[str]:
    """What `make up` and `make down` do first; the resources that only the cloud can tell of."""
    repair(stack.environment()["PULUMI_BACKEND_URL"], "test")
    stack.run("cancel", "--yes")
    return adopt(json.loads(stack.run("stack", "export")), lambda *words: bool(stack.run(*words)) or True)


def left(folder: Path) -> tuple[str, ...]:
    """What `make verify-empty` finds."""
    platform = GkeConfig.model_validate_json(json.dumps(SETTINGS))
    receipt = verify("test", platform, "simulated", simulated(folder))
    assert receipt.empty == (not receipt.left)
    return receipt.left


def resources(stack: SimulatedStack) -> list[str]:
    return sorted(stack.clouds.resources)


@pytest.fixture
def whole(new_stack: Callable[[str], SimulatedStack]) -> SimulatedStack:
    """A stack that is up."""
    stack = new_stack(PROGRAM)
    stack.up()
    assert len(stack.clouds.resources) == RESOURCES
    return stack


def test_killed_updates(new_stack: Callable[[str], SimulatedStack]) -> None:
    stack = new_stack(PROGRAM)
    for count in kills(9, RESOURCES):
        stack.up(fault=f"crash:{count}", fails=True)
        assert len(stack.clouds.resources) >= count, "the cloud has made what it was asked for"
        assert recover(stack) == []
        stack.up()
        assert len(stack.clouds.resources) == RESOURCES, f"killed after {count}"
        assert '"update"' not in stack.run("preview", "--json")
        stack.destroy()
        assert resources(stack) == [], f"killed after {count}"
        assert left(stack.folder / "clouds") == ()


def test_a_killed_update_is_destroyed_at_once(new_stack: Callable[[str], SimulatedStack]) -> None:
    stack = new_stack(PROGRAM)
    for count in kills(17):
        stack.up(fault=f"crash:{count}", fails=True)
        assert recover(stack) == []
        stack.destroy()
        assert resources(stack) == [], f"killed after {count}"


def test_killed_destroys(whole: SimulatedStack) -> None:
    for count in kills(1, 12):
        whole.destroy(fault=f"crash:{count}", fails=True)
        assert recover(whole) == []
        whole.destroy()
        assert resources(whole) == [], f"killed after {count}"
        assert left(whole.folder / "clouds") == ()
        whole.up()


def test_one_leaked_resource_is_named(whole: SimulatedStack) -> None:
    whole.destroy(fault="leak:account")
    (found,) = left(whole.folder / "clouds")
    assert found.startswith("service account killed-")


def test_a_cluster_that_is_gone_does_not_block_the_rest(whole: SimulatedStack) -> None:
    with changing(whole.folder / "clouds") as state:
        for key in [key for key in state.resources if key.startswith("gcp:container/")]:
            del state.resources[key]
    whole.destroy()
    assert read_state(whole.folder / "clouds").resources == {}
