"""What `make up` does with the jobs when they are there."""

from __future__ import annotations

from commands.up import unfollowed
from stack_config import parse
from tests.unit.refused import JOB, PLATFORM


def test_jobs_that_do_not_end_by_themselves_are_not_followed() -> None:
    changes = {"trains": {}, "idle": {"interactive": True}, "sleeps": {"suspend": True, "interactive": True}}
    config = parse({"platform": PLATFORM, "jobs": [{**JOB, "name": name, **more} for name, more in changes.items()]})
    assert unfollowed(config) == {
        "idle": "its hosts wait for you; `make exec JOB=idle RANK=0` opens a shell in one",
        "sleeps": "suspended; `suspend: false` starts it",
    }
