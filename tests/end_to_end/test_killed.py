"""`make up` and `make down` after Pulumi was killed at a certain number of resources in a local stack's state.

The test needs TRAINYARD_TESTS=long for three numbers of resources, or soak for every number. In other runs,
test_interrupted.py kills Pulumi once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from infra.local import leftovers
from tests.conftest import SOAK
from tests.end_to_end.conftest import Checkout, is_pulumi_in, processes

RESOURCES = 8
"""Number of resources that a complete `up` creates, without components and providers."""
COUNTS = range(1, RESOURCES + 1) if SOAK else (1, RESOURCES // 2, RESOURCES)
"""Numbers of resources in the state at which the tests kill Pulumi."""
LIMIT_SECONDS = 300.0
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]


def num_resources(checkout: Checkout) -> int:
    """Return the number of resources in the state, or -1 while the engine replaces the state's file."""
    (file, *_) = [*checkout.folder.glob(".trainyard/pulumi/.pulumi/stacks/*/local.json"), None]
    try:
        deployment = json.loads(file.read_text(encoding="utf-8"))["checkpoint"].get("latest") if file else None
    except (FileNotFoundError, json.JSONDecodeError):
        return -1
    resources = (deployment or {}).get("resources", [])
    return sum(each.get("custom", False) and not each["type"].startswith("pulumi:providers:") for each in resources)


def kill_pulumi_when(checkout: Checkout, command: str, condition: Callable[[int], bool]) -> None:
    """Run a make target, and kill its Pulumi when the number of resources in the state meets the condition."""
    log = checkout.folder / "killed.log"
    with log.open("w", encoding="utf-8") as file:
        running = subprocess.Popen(
            ["make", command],
            cwd=checkout.folder,
            env=checkout.environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + LIMIT_SECONDS
        while not ((count := num_resources(checkout)) >= 0 and condition(count)):
            assert running.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.01)
        victims = [pid for pid in processes() if is_pulumi_in(pid, checkout.folder)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        assert victims or count in (0, RESOURCES), "Pulumi ended before the test killed it"
        assert (running.wait(timeout=LIMIT_SECONDS) != 0) == bool(victims)


@pytest.mark.parametrize("count", COUNTS)
def test_killed_pulumi_up_converges_and_down_leaves_nothing(checkout: Checkout, count: int) -> None:
    checkout.change(flags={"epochs": 1})
    kill_pulumi_when(checkout, "up", lambda num: num >= count)
    printed = checkout.run("make", "up")
    assert "look for" not in printed, "`up` must need no manual step"
    assert "test_accuracy=" in printed
    assert num_resources(checkout) == RESOURCES
    kill_pulumi_when(checkout, "down", lambda num: num <= RESOURCES - count)
    assert "nothing is left" in checkout.run("make", "down")
    assert leftovers.find(checkout.cluster.folder, checkout.cluster.cgroup) == []
    assert '"empty": true' in checkout.run("make", "verify-empty")
