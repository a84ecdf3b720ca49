"""Jobs that `make up` does not follow, and the stack outputs that it prints."""

from __future__ import annotations

import pytest

from commands.job_results import unfollowed
from commands.up import print_outputs
from stack.config import parse
from tests.unit.stack_settings import JOB, PLATFORM


def test_unfollowed_interactive_and_suspended_jobs_have_reasons() -> None:
    changes = {"trains": {}, "idle": {"interactive": True}, "sleeps": {"suspend": True, "interactive": True}}
    config = parse({"platform": PLATFORM, "jobs": [{**JOB, "name": name, **more} for name, more in changes.items()]})
    assert unfollowed(config) == {
        "idle": "its hosts wait for you; `make exec JOB=idle RANK=0` opens a shell in one",
        "sleeps": "suspended; `suspend: false` starts it",
    }


def test_print_outputs_prints_one_line_each_without_empty_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_outputs(
        {
            "jobs": ["digits", "other"],
            "console": {},
            "image": "trainer:1",
            "run_records": {"digits": {"chips": 0, "accelerator": None, "pools": [], "plan": "sha256:1"}},
        }
    )
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Outputs of the stack:",
        "  image: trainer:1",
        "  jobs: digits, other",
        "  run_records:",
        "    digits:",
        "      chips: 0",
        "      plan: sha256:1",
    ]
