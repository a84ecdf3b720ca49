"""`make up` and `make down`, interrupted at random moments, leave no lock, process or traceback, and can continue.

A few tries by default, fifty with TRAINYARD_TESTS=all, or TRAINYARD_TRIES; TRAINYARD_SEED repeats a run's moments.
"""

from __future__ import annotations

import os
import random

import pytest
import yaml

from tests.conftest import ALL
from tests.end_to_end.conftest import Checkout
from tests.end_to_end.interrupting import WAYS, interrupt, left_by_runs

TRIES = int(os.environ.get("TRAINYARD_TRIES") or (50 if ALL else 5))
BEGINS = {"up": "Updating (", "down": "Destroying ("}
"""Text that Pulumi prints at its start."""
LONGEST_SECONDS = {"": 5.0, "Updating (": 15.0, "Destroying (": 4.0}
"""Maximum seconds after that text, and after the start of the command."""
WHOLE_EVERY = 5
"""Number of interrupted commands after which a complete `up` and `down` must work."""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]


@pytest.fixture
def small(checkout: Checkout) -> Checkout:
    """Return the checkout with one node and a job that is not followed."""
    content = yaml.safe_load(checkout.stack_file.read_text(encoding="utf-8"))
    content["config"]["trainyard:platform"].update(nodes=1)
    content["config"]["trainyard:jobs"][0].update(hosts=1, suspend=True)
    checkout.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return checkout


def run(checkout: Checkout, target: str) -> str:
    """Run a target to its end. Return its output."""
    said = checkout.run("make", target)
    assert "Traceback" not in said, said
    return said


def test_interrupted_command_leaves_nothing_and_can_be_repeated(small: Checkout) -> None:
    seed = int(os.environ.get("TRAINYARD_SEED") or random.randrange(1 << 32))
    print(f"TRAINYARD_SEED={seed}")
    moments = random.Random(seed)
    run(small, "up")
    run(small, "down")
    for count in range(TRIES):
        target, way = moments.choice(("up", "up", "down")), WAYS[count % len(WAYS)]
        text = moments.choice(("", BEGINS[target], BEGINS[target]))
        done = interrupt(small, target, way, moments.uniform(0, LONGEST_SECONDS[text]), text)
        print(f"{count}: make {target}, {way} {done.moment}: status {done.status}, {done.took:.1f} s later")
        assert "Traceback" not in done.said, done
        if way != "kill":
            assert left_by_runs(small) == [], done
        if count % WHOLE_EVERY == WHOLE_EVERY - 1:
            run(small, "up")
            assert left_by_runs(small) == []
            assert "nothing is left" in run(small, "down")
            assert left_by_runs(small) == []
